"""Rank records by worth: one order, used by the budget and the core.

Pinned first; then measured utility (Laplace, arXiv 2510.16079), then status (active before provisional), then how often
a record was cited and shown, then the newer one.
"""

from __future__ import annotations

from typing import Any

from memory.records import Record, Status

MIN_USES = 5
MIN_UTILITY = 0.3


def rank_key(record: Record[Any]) -> tuple[bool, float, bool, int, int, int, str]:
    """Return the sort key of worth, best first when sorted ascending."""
    usage = record.usage
    return (
        not record.pinned,
        -usage.utility,
        record.status is not Status.ACTIVE,
        -usage.cited,
        -usage.injected,
        -record.number,
        record.id,
    )


def is_spent(record: Record[Any]) -> bool:
    """Return True when a record was judged `MIN_USES` times or more and its utility is below `MIN_UTILITY`.

    Utility alone would say so after three harmful tags; a pinned record never is.
    """
    uses = record.usage.helpful + record.usage.harmful
    return not record.pinned and uses >= MIN_USES and record.usage.utility < MIN_UTILITY
