"""A pivot without a model: the first step that erred, or did what a lesson of the episode speaks of."""

from __future__ import annotations

from collections.abc import Sequence

from evolve.training.pivot import Pivot
from memory.records import Insight, Step, Trajectory
from playbooks.calls import calls_of
from playbooks.rules import RulesReflector
from policies.protocols import Policy, SamplingParams

__all__ = ["rules"]


async def rules(trajectory: Trajectory, policy: Policy, params: SamplingParams) -> Pivot | None:
    """Return the lessons that the reflector `rules` draws, and the first step that erred or made a call they are about.

    Assumption: what was wrong shows in an error or in a failed check that name the call. An episode of which that
    reflector learns nothing has no pivot: an error that says nothing guides nobody.
    Source: stands in for the reflecting policy of R3L (arXiv 2601.03715), for models that cannot be it.
    """
    lessons = (await RulesReflector().reflect(trajectory, ())).insights
    step = _first(trajectory.steps, lessons)
    if not lessons or step is None:
        return None
    return Pivot(step=step, lessons=tuple(lesson.content for lesson in lessons))


def _first(steps: Sequence[Step], lessons: Sequence[Insight]) -> int | None:
    meant = {word for lesson in lessons for word in lesson.cue.split()}
    for step, calls in zip(steps, calls_of(steps), strict=True):
        if step.error or any(call.name in meant for call in calls):
            return step.index
    return None
