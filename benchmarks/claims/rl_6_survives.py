"""Claim rl_6: training survives. Kills at random moments, full disks, gradients that are no numbers, servers that die.

(a) Trainings of the pocket model, by rollouts of chains (`run`) and on the journal (`sft`), in a workspace where an
    adapter is live, are killed by SIGKILL and resumed until they end. (b) `evolve train run` meets a disk that runs
    full (a tmpfs, or a limit on files where none may be mounted), an advantage that is no number, and an office whose
    server dies in the middle of a batch of rollouts; then the fault is mended and the same command goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.office_arms import folder
from benchmarks.train_faults import METHOD, Found, cases, examine
from benchmarks.train_kills import UNDER_WAY, Toll, kill_trainings

SEED = 0
NONE = exactly(0)


@dataclass(frozen=True)
class Size:
    """How much is tried."""

    kills: int = 50


QUICK = Size(kills=4)


def kill_rows(toll: Toll, wanted: int) -> list[Row]:
    """Return the figures of part (a)."""
    kills, phases, n = toll.kills, toll.phases, toll.trainings
    rollouts, update = (phases[name] for name in UNDER_WAY)
    some = at_least(1) if wanted > QUICK.kills else None
    registries = "registries in which another generation is live, or files or candidates are wrong"
    return [
        Row("SIGKILLs of trainings", kills, at_least(wanted), n=n, seed=SEED),
        Row("of them in rollouts", rollouts, some, n=kills),
        Row("of them in an update, or writing its checkpoint", update, some, n=kills),
        Row("of them publishing the candidate", phases["publish"], n=kills),
        Row("of them before the work began", phases["start"], n=kills),
        Row("of them in training on the journal", toll.methods["sft"], some, n=kills),
        Row("trainings that could not be resumed", len(toll.stuck), NONE, n=n),
        Row("of them that left a checkpoint with something in it", toll.held, some, n=kills),
        Row("resumptions that did again what a checkpoint held", len(toll.again), NONE, n=toll.held),
        Row("histories of surviving weights with a gap, or an episode twice", len(toll.doubled), NONE, n=toll.held),
        Row(registries, len(toll.registry), NONE, n=kills),
        Row("findings of the doctor, or stores that did not open", len(toll.findings), NONE, n=kills),
        Row("trainings not published exactly once", len(toll.published), NONE, n=n),
        Row("resumed trainings with other weights (bit for bit), history or figures", len(toll.different), NONE, n=n),
    ]


def fault_rows(found: Sequence[Found]) -> list[Row]:
    """Return the figures of part (b)."""
    counts = {
        "that end with one sentence naming the fix": sum(f.sentence for f in found),
        "with a non-zero exit": sum(f.nonzero for f in found),
        "after which the live policy is as before, and nothing is published": sum(f.untouched for f in found),
        "that, once mended, end as an undisturbed training": sum(f.as_undisturbed for f in found),
    }
    return [Row(f"faults {what}", count, exactly(len(found)), n=len(found)) for what, count in counts.items()]


def measure(root: Path, size: Size) -> list[Row]:
    """Return all figures; what went wrong is printed in full."""
    toll, straight, original = kill_trainings(root, size.kills, SEED)
    wrong = [*toll.stuck, *toll.again, *toll.doubled, *toll.registry, *toll.findings, *toll.published, *toll.different]
    print(*wrong, sep="\n", file=sys.stderr)
    undisturbed = straight[METHOD]
    found = [
        examine(name, original, root / f"fault-{at}", undisturbed, case)
        for at, (name, case) in enumerate(cases(undisturbed, quick=size == QUICK).items())
    ]
    return [*kill_rows(toll, size.kills), *fault_rows(found)]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("rl_6_survives", __doc__)
    with folder() as root:
        rows = measure(root, QUICK if claim.quick else Size())
    claim.conclude(rows)


if __name__ == "__main__":
    main()
