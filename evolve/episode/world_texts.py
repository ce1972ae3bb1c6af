"""An environment's texts for the agent, kept in the journal once for each run.

With it a prompt can be made again where the environment itself is not at hand, or may not be run.
"""

from __future__ import annotations

from collections.abc import Sequence

from evolve.protocols import Demonstration
from memory.records import Event, Frozen
from memory.store import Store
from policies.protocols import Profile, ToolSpec

EVENT = "run.world"


class WorldTexts(Frozen):
    """What stands in every prompt of a run before the task."""

    text: str
    """The briefing; in journals of earlier versions also how to search."""
    searching: str = ""
    """How to search, for the episodes that can."""
    profile: Profile
    tools: tuple[ToolSpec, ...] = ()
    """All that may be offered natively; a task may offer a part of them (`Trajectory.tools`)."""
    demonstration: Demonstration | None = None
    """Shown as earlier turns where no exemplar is."""
    stop: tuple[str, ...] = ()
    """Where a reply ends."""

    def offered(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the tools of a task that names its own, in its order; all of them where it names none."""
        known = {tool.name: tool for tool in self.tools}
        return tuple(known[name] for name in names if name in known) if names else self.tools


def keep(store: Store, run_id: str, words: WorldTexts) -> None:
    """Journal what a run tells its agent, unless that stands there already."""
    if kept(store, run_id) != words:
        store.append(Event(type=EVENT, run_id=run_id, subject=run_id, data=words.model_dump(mode="json")))


def kept(store: Store, run_id: str) -> WorldTexts | None:
    """Return what a run last told its agent; None in journals of earlier versions, and where it was purged."""
    found = [event.data for event in store.events(type=EVENT, run_id=run_id) if "text" in event.data]
    return WorldTexts.model_validate(found[-1]) if found else None
