"""pass@k of a run that learned: how many of its tasks any of k attempts solved. The stream's own figures are pass@1."""

from __future__ import annotations

from collections.abc import Sequence

from evolve.episode.arms import ATTEMPT
from memory.records import Frozen, Trajectory


class PassAtK(Frozen):
    """What further attempts at failed tasks brought."""

    k: int
    """Most attempts at a task."""
    tasks: int
    first: int
    """Tasks that their first attempt solved."""
    solved: int
    """Tasks that one of the attempts solved."""
    episodes: int
    """Further attempts that were made."""


def pass_at_k(k: int, stream: Sequence[Trajectory], episodes: Sequence[Trajectory]) -> PassAtK | None:
    """Return what the further attempts among a run's `episodes` add to its stream; None where there are none."""
    further = [episode for episode in episodes if episode.arm == ATTEMPT]
    if not further:
        return None
    first = {episode.task.id for episode in stream if episode.success}
    later = {episode.task.id for episode in further if episode.success}
    return PassAtK(k=k, tasks=len(stream), first=len(first), solved=len(first | later), episodes=len(further))


def lines(found: PassAtK | None) -> list[str]:
    """Return the figures as text for people; nothing where there are none."""
    if found is None:
        return []
    share = found.solved / max(found.tasks, 1)
    return [f"pass@{found.k:<23} {share:6.1%}  with {found.episodes} further attempts at what the first one failed"]
