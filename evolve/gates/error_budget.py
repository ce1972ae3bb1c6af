"""What the looks before this one spent: of the error of a change, and of episodes; read back from their evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Evidence = Mapping[str, Any]


def left_of(looks: Sequence[Evidence], now: Evidence, first: int, error: float) -> float:
    """Return what is left to the change in `now["ops"]` that has least of it.

    A look that ended for want of calls and is taken up again sees the same runs of its first `first` tasks. It is one
    look: it pays once, as far as it came in the end.
    """
    paid = {_runs(look, first): look for look in looks if "left" in look["statistics"]}
    paid.pop(_runs(now, first), None)
    left: dict[str, float] = dict.fromkeys(now["ops"], error)
    for look in paid.values():
        for op_id in set(look["ops"]) & set(left):
            left[op_id] -= look["trial"]["left"] - look["statistics"]["left"]
    return min(left.values())


def share_of_code(looks: Sequence[Evidence]) -> float:
    """Return which share of the episodes of some looks was for changes that are code alone; 0 without looks."""
    runs = [
        (look["trial"].get("thrift", False), len(look["trial"]["base"]) + len(look["trial"]["candidate"]))
        for look in looks
    ]
    return sum(count for code, count in runs if code) / max(1, sum(count for _, count in runs))


def _runs(look: Evidence, first: int) -> tuple[object, ...]:
    """Return what tells a look from others: its changes, and how both arms did on the first tasks."""
    trial = look["trial"]
    marks = [
        (task, trial["base"].get(task), trial["candidate"].get(task), *trial["reach"].get(task, ()))
        for task in trial["cohort"][:first]
    ]
    return (*look["ops"], *marks)
