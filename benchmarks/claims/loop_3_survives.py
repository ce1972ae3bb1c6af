"""Claim loop_3: the loop survives. Kills at random moments, eight writers at once, damaged model outputs.

(a) Online runs of the scripted office worker (rules reflector, direct curator; exact and Chroma index in turns) are
    killed by SIGKILL and resumed until they are done. (b) Eight processes write deltas to one workspace. (c) Damaged
    replies go through the model reflector and the model curator of both profiles. Everything is seeded but the clock.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.damaged_replies import Kept, send_damaged
from benchmarks.kills import Toll, kill_runs
from benchmarks.office_arms import folder
from benchmarks.writers import Fates, write_together

SEED = 0


@dataclass(frozen=True)
class Size:
    """How much is tried."""

    kills: int = 200
    tasks: int = 8
    writers: int = 8
    turns: int = 200
    replies: int = 2000


QUICK = Size(kills=8, tasks=4, turns=20, replies=200)
NONE = exactly(0)


def kill_rows(toll: Toll, wanted: int) -> list[Row]:
    """Return the figures of part (a)."""
    kills, runs = toll.kills, toll.runs
    return [
        Row("SIGKILLs during online runs", kills, at_least(wanted), n=runs, seed=SEED),
        Row("of them inside a transaction, at a chosen SQL statement", toll.in_transaction, at_least(1), n=kills),
        Row("committed events lost or changed", toll.lost, NONE, n=toll.events),
        Row("workspaces that did not open", len(toll.unopened), NONE, n=kills),
        Row("runs that could not be resumed", len(toll.stuck), NONE, n=runs),
        Row("findings: projection is not the replayed journal, or other damage", len(toll.findings), NONE, n=kills),
        Row("journalled model calls made again", toll.repeated, NONE, n=toll.calls),
        Row("model calls whose reply a kill caught before the journal (made again)", toll.unjournalled, n=toll.calls),
        Row("resumed runs that ended otherwise than uninterrupted", toll.different, NONE, n=runs),
    ]


def writer_rows(fates: Fates, writers: int) -> list[Row]:
    """Return the figures of part (b)."""
    n = fates.deltas
    return [
        Row(f"{writers} writers: deltas neither committed nor reported", fates.lost, NONE, n=n),
        Row(f"{writers} writers: committed deltas without their effect", fates.without_effect, NONE, n=n),
        Row(f"{writers} writers: findings of the doctor", len(fates.findings), NONE, n=1),
        Row(f"{writers} writers: deltas committed", fates.committed, n=n),
        Row(f"{writers} writers: stale edits refused and reported", fates.refused, n=n),
    ]


def reply_rows(kept: Kept) -> list[Row]:
    """Return the figures of part (c)."""
    n = kept.replies
    return [
        Row("damaged replies: crashes", len(kept.crashes), NONE, n=n, seed=SEED),
        Row("damaged replies: recoverable lessons not kept", kept.missed.total(), NONE, n=kept.recoverable, seed=SEED),
        Row("damaged replies: neither lesson nor raw reflection stored", kept.dropped, NONE, n=n, seed=SEED),
        Row(
            "damaged replies: forged headings or bullets in a prompt",
            kept.forged if kept.forgeries else None,
            NONE,
            n=kept.forgeries,
            seed=SEED,
        ),
        Row("damaged replies: findings of the doctor", len(kept.findings), NONE, n=1, seed=SEED),
        Row("damaged replies: stored as raw reflections", kept.raw, n=n, seed=SEED),
    ]


def measure(root: Path, size: Size) -> list[Row]:
    """Return all figures; what went wrong is printed in full."""
    fates = write_together(root / "writers", size.writers, size.turns)
    kept = asyncio.run(send_damaged(root / "replies", size.replies, SEED))
    toll = kill_runs(root / "kills", size.kills, size.tasks, SEED)
    wrong = [*toll.unopened, *toll.stuck, *toll.findings, *fates.findings, *kept.crashes, *kept.findings]
    print(*wrong, sep="\n", file=sys.stderr)
    return [*kill_rows(toll, size.kills), *writer_rows(fates, size.writers), *reply_rows(kept)]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("loop_3_survives", __doc__)
    logging.getLogger("policies").setLevel(logging.ERROR)  # each damaged reply would be a warning
    with folder() as root:
        rows = measure(root, QUICK if claim.quick else Size())
    claim.conclude(rows)


if __name__ == "__main__":
    main()
