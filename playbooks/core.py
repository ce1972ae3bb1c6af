"""Records that stand in every prompt, and when that may change.

Core = pinned by the operator, or active with top utility, at most half the token budget. It changes only at compaction
points (every 50 tasks by default), so that the first part of the prompt stays byte-equal in between: what was removed
since is shown until then. Pure: the loop keeps the returned `Core` in its state and nothing here is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memory.protocols import KnowledgeView
from memory.records import RECALLABLE, Frozen, Record, Status
from playbooks.ranking import is_spent
from playbooks.token_budget import fill
from playbooks.view import creation_order
from policies.protocols import Profile

COMPACTION_TASKS = 50
SHARE = 0.5
"""Part of the token budget that the core may take."""


class Core(Frozen):
    """The core as of one compaction point."""

    ids: tuple[str, ...] = ()
    """In order of creation."""
    tasks: int | None = None
    """Tasks done when it was chosen; None = never chosen."""


def due(core: Core, tasks_done: int, *, every: int = COMPACTION_TASKS) -> bool:
    """Return True at a compaction point: the core was never chosen, or `every` tasks passed since."""
    return core.tasks is None or tasks_done - core.tasks >= every


def choose(
    view: KnowledgeView, budget: int, count_tokens: Callable[[str], int], *, profile: Profile, tasks_done: int = 0
) -> Core:
    """Return the core chosen now: best-ranked first, what fits into half of `budget` tokens.

    Raises `BadInput` when the pinned records alone are over that half.
    """
    eligible = [r for r in view.records() if r.pinned or (r.status is Status.ACTIVE and not is_spent(r))]
    chosen = fill(eligible, int(budget * SHARE), count_tokens, profile)
    return Core(ids=tuple(r.id for r in sorted(chosen, key=creation_order)), tasks=tasks_done)


def core_records(core: Core, view: KnowledgeView) -> tuple[Record[Any], ...]:
    """Return the records of the core as they are now, in order of creation.

    One that was retired or superseded since stays until the next compaction point; one that was rejected or purged is
    gone at once, and an edited one shows its new text.
    """
    shown = RECALLABLE | {Status.RETIRED, Status.SUPERSEDED}
    found = [record for record in map(view.get, core.ids) if record is not None and record.status in shown]
    return tuple(sorted(found, key=creation_order))
