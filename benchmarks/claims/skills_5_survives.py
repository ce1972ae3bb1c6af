"""Claim skills_5: what holds for the loop holds for skills. Kills, and processes that want the same skill at once.

(a) Online runs of the scripted office worker with skills are killed by SIGKILL and resumed until they are done. (b)
`evolve skills promote` dies at each of its SQL statements, in a workspace of its own; then it is called again. (c)
Processes promote the same skills at the same time: one is told that it put a skill in use, the others that it is in use
already. (d) Processes register the same functions at the same time.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claim import Row, at_least, begin
from benchmarks.claims.loop_3_survives import NONE, SEED, kill_rows
from benchmarks.kills import kill_runs
from benchmarks.office_arms import folder
from benchmarks.skill_promotions import Together, add_together, kill_promotions, promote_together


@dataclass(frozen=True)
class Size:
    """How much is tried."""

    kills: int = 60
    tasks: int = 8
    every: int = 1
    """Of the statements of a promotion, each so-many-th kills."""
    processes: int = 8
    skills: int = 20


QUICK = Size(kills=4, tasks=4, every=12, processes=2, skills=5)


def promoted_rows(found: Together, processes: int) -> list[Row]:
    """Return the figures of part (c)."""
    who, n = f"{processes} processes promote the same skills", processes * found.skills
    told = f"{who}: names that other than one process was told it put in use"
    ended = f"{who}: promotions that ended otherwise than applied or as unchanged"
    return [
        Row(told, len(found.claimed), NONE, n=found.skills),
        Row(ended, len(found.astray), NONE, n=n),
        *_left(who, found, n),
    ]


def added_rows(found: Together, processes: int) -> list[Row]:
    """Return the figures of part (d)."""
    who = f"{processes} processes register the same functions"
    failed = Row(f"{who}: ended by an error", found.failed, NONE, n=processes)
    return [failed, *_left(who, found, processes * found.skills)]


def _left(who: str, found: Together, n: int) -> list[Row]:
    return [
        Row(f"{who}: names not in use exactly once", len(found.wrong), NONE, n=n),
        Row(f"{who}: findings of the doctor", len(found.findings), NONE, n=1),
    ]


def measure(root: Path, size: Size) -> list[Row]:
    """Return all figures; what went wrong is printed in full."""
    promoted = promote_together(root / "promoted", size.processes, size.skills)
    added = add_together(root / "added", size.processes, size.skills)
    torn = kill_promotions(root / "promotions", size.every)
    toll = kill_runs(root / "kills", size.kills, size.tasks, SEED, skills=True)
    wrong = [*toll.unopened, *toll.stuck, *toll.findings, *torn.torn, *torn.findings, *promoted.wrong, *added.wrong]
    print(*wrong, *promoted.claimed, *promoted.astray, sep="\n", file=sys.stderr)
    return [
        *kill_rows(toll, size.kills),
        Row("promotions killed, each at another SQL statement", torn.kills, at_least(1), n=torn.kills),
        Row(
            "skills neither as before nor promoted, or workspaces that did not open", len(torn.torn), NONE, n=torn.kills
        ),
        Row("findings of the doctor after a killed promotion", len(torn.findings), NONE, n=torn.kills),
        Row("skills that could not be promoted afterwards", torn.stuck, NONE, n=torn.kills),
        Row("killed after the promotion was committed", torn.promoted, n=torn.kills),
        *promoted_rows(promoted, size.processes),
        *added_rows(added, size.processes),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("skills_5_survives", __doc__)
    with folder() as root:
        rows = measure(root, QUICK if claim.quick else Size())
    claim.conclude(rows)


if __name__ == "__main__":
    main()
