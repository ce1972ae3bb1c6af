"""Finds the good ops among many with few looks: all at once first, halves where good and bad are mixed (group testing).

Every group is tested on top of what was admitted before it. One half of k bad ops among N costs about k * log2(N) looks
more. What cannot be afforded waits, and so does what looks good and is too little to tell: it is tested again when more
has come to it, at most `patience` times in all, so that nothing waits for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from evolve.gates.purse import OutOfCalls
from evolve.gates.rounds import Round
from evolve.statistics.decision import Decision
from memory.records import DeltaOp

Look = Callable[
    [Sequence[DeltaOp], Sequence[DeltaOp], Sequence[Round]], Awaitable[tuple[Decision | None, OutOfCalls | None]]
]
"""Decides about ops on top of others, given the rounds so far; what it could not afford comes beside what it knows."""


async def search(
    ops: Sequence[DeltaOp], look: Look, *, tried: Callable[[str], int], patience: int
) -> tuple[list[Round], dict[str, str], OutOfCalls | None]:
    """Return the rounds, why the ops that are left undecided wait, and whether for calls.

    `tried`: earlier looks at an op, by its id.
    """
    rounds: list[Round] = []
    out_of_calls: OutOfCalls | None = None
    waiting: dict[str, str] = {}
    admitted: list[DeltaOp] = []
    groups = deque([_by_origin(ops)])
    while groups:
        group = groups.popleft()
        ids = tuple(op.op_id for op in group)
        decision, short = await look(admitted, group, rounds)
        if decision is not None:
            rounds.append(Round(ids, decision))
        out_of_calls = out_of_calls or short
        if short is not None or decision is None:
            waiting |= dict.fromkeys(ids, str(short))
            continue
        ahead, behind = decision.evidence["statistics"]["ahead"], decision.evidence["statistics"]["behind"]
        if decision.accepted:
            admitted += group
        elif len(group) > 1 and ahead and behind:
            half = (len(group) + 1) // 2
            groups.extendleft((group[half:], group[:half]))
        elif ahead > behind:
            patient = [key for key in ids if tried(key) + 1 < patience]
            waiting |= dict.fromkeys(patient, f"waits for more: {decision.reason}")
    return rounds, waiting, out_of_calls


def _by_origin(ops: Sequence[DeltaOp]) -> list[DeltaOp]:
    """Return the ops with those of the same tasks side by side, so that halves cut between tasks."""
    first: dict[tuple[str, ...], int] = {}
    for at, op in enumerate(ops):
        first.setdefault(op.provenance.task_ids, at)
    return sorted(ops, key=lambda op: first[op.provenance.task_ids])
