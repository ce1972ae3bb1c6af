"""Claim mend_6: the suite passes three times at a load of sixteen, and faults put into the source are noticed.

The three runs start at once with five workers each; a burner is the sixteenth process. Runs and mutants are kept by
commit under `build/steady/` as they end: killed, the same command goes on with the runs that lack, by themselves. So
one row counts how many of the three were at work at the same time, and one how many tries were begun and are not the
runs that are kept. The load of the machine is sampled each minute; its mean stands beside the sixteen asked for. First
`make test` is timed, by itself; the load when it began stands beside, since a busy machine makes the figure worse.

Sixty mutants, drawn by seed in turn from each area and each kind of fault. Those that are known to change nothing
(`benchmarks/data/mutants_equivalent.jsonl`) are not drawn. Undecided is a mutant whose tests did not end in time, or
failed on the source as well. Seed 23 is the second look: a survivor of seed 17 was seen, and mended by a new test,
before seed 23 was drawn (commit c02783cc).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claim import Row, at_least, begin
from benchmarks.mutants import AREAS, CAUGHT, SURVIVED, UNDECIDED, Verdict, run, sample, share
from benchmarks.steady import kept_at, quick_rows, steady_rows
from benchmarks.table import ROOT

SEED, COUNT, BOX, JOBS = 23, 60, 600.0, 2
LEAST = 95.0


def mutant_rows(verdicts: Sequence[Verdict]) -> list[Row]:
    """Return the share of mutants that a test caught, in all and by area, and what stands beside it."""
    counts = Counter(each.answer for each in verdicts)
    decided = counts[CAUGHT] + counts[SURVIVED]
    rows = [Row("mutants caught, %", _percent(verdicts), at_least(LEAST), n=decided, seed=SEED)]
    for area in AREAS:
        found = [each for each in verdicts if each.area == area.name]
        rows.append(Row(f"of {area.name}, %", _percent(found), n=len(found), seed=SEED))
    return [*rows, Row("undecided", counts[UNDECIDED], n=len(verdicts), seed=SEED)]


def _percent(verdicts: Sequence[Verdict]) -> float | None:
    caught = share(verdicts)
    return None if caught is None else 100 * caught


def main() -> None:
    """Measure and record. With `--quick` one folder of tests under load, and four mutants."""
    claim = begin("mend_6_steady", __doc__)
    root = Path(ROOT)
    steady = quick_rows(claim.commit) if claim.quick else steady_rows(claim.commit)
    chosen = sample(root, 4 if claim.quick else COUNT, SEED)
    kept = None if claim.quick else kept_at(claim.commit, "mutants", ".jsonl")
    claim.conclude(steady + mutant_rows(run(root, chosen, box=BOX, jobs=JOBS, kept=kept)))


if __name__ == "__main__":
    main()
