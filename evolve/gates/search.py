"""Finds the good ops among many with few looks: all at once first, halves where good and bad are mixed (group testing).

Every group is tested on top of what was admitted before it, and what of an accepted one is not missed when it is left
out is not admitted (`evolve.gates.ablation`). One half of k bad ops among N costs about k * log2(N) looks
more. What cannot be afforded waits, and so does what looks good and is too little to tell: it is tested again when more
has come to it, at most `patience` times in all, so that nothing waits for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from evolve.gates.ablation import Ablated
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.decisions import Round
from evolve.statistics.decision import Decision
from memory.records import DeltaOp

Look = Callable[
    [Sequence[DeltaOp], Sequence[DeltaOp], Sequence[Round]], Awaitable[tuple[Decision | None, OutOfCalls | None]]
]
"""Decides about ops on top of others, given the rounds so far; what it could not afford comes beside what it knows."""
Ablate = Callable[[Sequence[DeltaOp], Sequence[DeltaOp], Decision], Awaitable[Ablated]]
"""Asks what matters of ops that were accepted on top of others."""


@dataclass
class Found:
    """What a search came to."""

    rounds: list[Round] = field(default_factory=list[Round])
    ablated: list[Round] = field(default_factory=list[Round])
    """What was seen to matter of each op that a round accepted."""
    waiting: dict[str, str] = field(default_factory=dict[str, str])
    """Why the ops that are left undecided wait."""
    short: OutOfCalls | None = None
    """Set where some wait for calls."""


async def search(
    groups: Sequence[Sequence[DeltaOp]], look: Look, ablate: Ablate, *, tried: Callable[[str], int], patience: int
) -> Found:
    """Return what became of the ops of some groups, each looked at on top of what was admitted before it.

    `tried`: earlier looks at an op, by its id.
    """
    found = Found()
    rounds, waiting = found.rounds, found.waiting
    admitted: list[DeltaOp] = []
    left = deque(_by_origin(group) for group in groups if group)
    while left:
        group = left.popleft()
        ids = tuple(op.op_id for op in group)
        decision, short = await look(admitted, group, rounds)
        if decision is not None:
            rounds.append(Round(ids, decision))
        found.short = found.short or short
        if short is not None or decision is None:
            waiting |= dict.fromkeys(ids, str(short))
            continue
        ahead, behind = decision.evidence["statistics"]["ahead"], decision.evidence["statistics"]["behind"]
        if decision.accepted:
            parts = await ablate(admitted, group, decision)
            admitted += parts.admitted
            found.ablated += parts.rounds
            found.short = found.short or parts.short
            waiting |= {
                key: why for key, why in parts.waiting.items() if parts.short is not None or tried(key) + 1 < patience
            }
        elif len(group) > 1 and ahead and behind:
            half = (len(group) + 1) // 2
            left.extendleft((group[half:], group[:half]))
        elif ahead > behind:
            patient = [key for key in ids if tried(key) + 1 < patience]
            waiting |= dict.fromkeys(patient, f"waits for more: {decision.reason}")
    return found


def _by_origin(ops: Sequence[DeltaOp]) -> list[DeltaOp]:
    """Return the ops with those of the same tasks side by side, so that halves cut between tasks."""
    first: dict[tuple[str, ...], int] = {}
    for at, op in enumerate(ops):
        first.setdefault(op.provenance.task_ids, at)
    return sorted(ops, key=lambda op: first[op.provenance.task_ids])
