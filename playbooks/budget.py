"""What fits: the best-ranked records whose rendering takes at most so many tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memory.errors import BadInput
from memory.records import Record
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
