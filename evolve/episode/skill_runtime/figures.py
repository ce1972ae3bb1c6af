"""Figures of the skills of a run, read from the journal: how often they are used, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

from evolve.episode.injection import shown_again
from evolve.episode.skill_runtime.prelude import LEFT_OUT
from memory.records import Frozen, Trajectory
from memory.store import Store
from skills.record import Skill
from skills.usage import uses


class SkillFigures(Frozen):
    """Skills in the episodes of one run's main arm. Rates in [0, 1]; 0.0 of nothing."""

    tasks: int
    shown: int
    """Tasks that were given a skill."""
    used: int
    """Of those, tasks in which one of them was called."""
    solved: int
    """Of these, tasks that were solved."""
    failed: int
    """Calls of a skill that ended in an error, each step once."""
    new: int
    """Skills that were added."""
    left_out: int
    """Tasks whose skills could not be defined."""

    @property
    def citation(self) -> float:
        """Return the share of tasks with skills that used one."""
        return self.used / self.shown if self.shown else 0.0

    @property
    def success(self) -> float:
        """Return the share of tasks that used a skill and were solved."""
        return self.solved / self.used if self.used else 0.0

    @property
    def growth(self) -> float:
        """Return new skills per task: as a library is completed it goes to 0 (EGL, arXiv 2601.18226)."""
        return self.new / self.tasks if self.tasks else 0.0


def figures(store: Store, run_id: str, stream: Sequence[Trajectory]) -> SkillFigures | None:
    """Return the figures of a run's main arm; None where there were no skills at all."""
    added = store.reader.load([event.subject for event in store.events(type="knowledge.add", run_id=run_id)])
    given = [(trajectory, shown_again(store, trajectory.injected).skills) for trajectory in stream]
    calls = [(trajectory, uses(trajectory, skills)) for trajectory, skills in given if skills]
    used = [trajectory for trajectory, found in calls if found]
    counted = SkillFigures(
        tasks=len(stream),
        shown=len(calls),
        used=len(used),
        solved=sum(trajectory.success for trajectory in used),
        failed=sum(not use.ok for _, found in calls for use in found),
        new=sum(record.kind == Skill.kind for record in added),
        left_out=len(store.events(type=LEFT_OUT, run_id=run_id)),
    )
    return counted if counted.shown or counted.new or counted.left_out else None


def lines(found: SkillFigures | None) -> list[str]:
    """Return the figures as text for people."""
    if found is None:
        return []
    head = (
        f"skills: given to {found.shown} of {found.tasks} tasks, used by {found.citation:.0%} of them, "
        f"{found.success:.0%} of these solved; {found.failed} failed calls; {found.growth:.2f} new a task"
    )
    left = f"warning: the skills of {found.left_out} tasks could not be defined and were left out"
    return [head, *([left] if found.left_out else [])]
