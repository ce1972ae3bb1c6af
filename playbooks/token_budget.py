"""Token budget: the best records whose rendering takes at most so many tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memory.errors import BadInput
from memory.fusion import within_budget
from memory.records import Recalled, Record
from playbooks.ranking import rank_key
from playbooks.render import cost, render_record
from policies.protocols import Profile


def fill(
    records: Sequence[Record[Any]], budget: int, count_tokens: Callable[[str], int], profile: Profile
) -> list[Record[Any]]:
    """Return the records kept, best-ranked first: each in turn that still fits; the whole rendering is within `budget`.

    Pinned records are always kept. Raises `BadInput` when they alone are over the budget.
    """
    ranked = sorted(records, key=rank_key)
    pinned = [record for record in ranked if record.pinned]
    spent = cost(pinned, profile, count_tokens)
    if spent > budget:
        raise BadInput(
            f"{len(pinned)} pinned records take {spent} tokens, the budget is {budget}: unpin some or raise the budget"
        )
    kept = list(pinned)
    for record in ranked[len(pinned) :]:
        own = count_tokens(render_record(record, profile) + "\n")
        if spent + own <= budget:
            kept.append(record)
            spent += own
    while cost(kept, profile, count_tokens) > budget:
        kept.pop()
    return kept


def shared(budget: int, *answers: Sequence[Recalled]) -> tuple[tuple[Recalled, ...], ...]:
    """Return what several answers of recall keep of one budget: pinned records first, then by measured utility, then by
    rank in their own answer. Each answer keeps its order.
    """
    offers = [(at, item) for at, answer in enumerate(answers) for item in answer]
    offers.sort(key=lambda offer: (not offer[1].record.pinned, -offer[1].record.usage.utility, offer[1].rank, offer[0]))
    kept = within_budget([item.tokens for _, item in offers], budget)
    ids = {offers[place][1].record.id for place in kept}
    return tuple(tuple(item for item in answer if item.record.id in ids) for answer in answers)
