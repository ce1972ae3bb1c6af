"""Claim gates_6: a comparison is affordable. Three presets on three offices, 51 report tasks, on two cores.

What is timed is `make bench-compare` from an empty folder: the default, the presets that the pocket model can play, A/A
and no memory each learn 60 tasks and are judged, gates included. That it goes on after a kill is a test
(`tests/evolve/compare/test_compare.py`). `--quick` times the scripted worker on a fraction of it, so its minutes say
nothing about the target.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.claim import Row, at_most, begin, exactly
from benchmarks.office_arms import folder
from benchmarks.presets import PLAYED, Bench, measure, quick
from evolve.compare.compare_session import reprint

MINUTES = 30


def main() -> None:
    """Measure and record."""
    claim = begin("gates_6_compare_time", __doc__)
    bench = quick(PLAYED) if claim.quick else Bench()
    with folder() as root:
        started = time.monotonic()
        found = measure(bench, Path(root) / "presets")
        minutes = (time.monotonic() - started) / 60
        again = time.monotonic()
        same = reprint(Path(root) / "presets") == found
        reread = time.monotonic() - again
    learned = [life.learned for life in found.lives if life.learned]
    stream = sum(each.usage.calls for each in learned)
    gates = max(each.gates.usage.calls / each.usage.calls for each in learned)
    claim.record(
        [
            Row(
                "presets compared on three deployments, minutes", minutes, at_most(MINUTES), n=len(found.lives), seed=0
            ),
            Row("printed again from the journals: seconds", reread, at_most(60), seed=0),
            Row("printed again from the journals: the same report", float(same), exactly(1), seed=0),
            Row("gate calls over the stream's own, largest of any life", gates, at_most(2), n=len(learned), seed=0),
            Row("calls of the streams", stream, n=len(learned), seed=0),
            Row("missing episodes", sum(life.missing for life in found.lives), exactly(0), n=found.n, seed=0),
        ]
    )


if __name__ == "__main__":
    main()
