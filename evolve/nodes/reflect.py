"""Asks the reflector what each episode of the batch teaches."""

from __future__ import annotations

from typing import Any

from evolve.injection import shown_again
from evolve.nodes.episodes import batch_episodes
from evolve.parallel import all_of
from evolve.replies import about
from evolve.seeds import id_for
from evolve.state import Deps, State
from memory.records import Reflection, Trajectory


async def reflect(state: State, deps: Deps) -> dict[str, Any]:
    """Store a reflection for every episode worth one and return their ids in task order.

    Repeated after a crash, it meets the journalled replies and keeps the reflections that were stored.
    """
    if not deps.config.playbook.enabled:
        return {"reflections": []}
    chosen = [t for t in batch_episodes(state, deps) if _teaches(t, deps)]
    return {"reflections": await all_of(_reflect(trajectory, deps) for trajectory in chosen)}


def _teaches(trajectory: Trajectory, deps: Deps) -> bool:
    if not trajectory.steps:
        return False
    everything = deps.config.run.label_free or deps.config.playbook.reflect_on == "all"
    return everything or not trajectory.success


async def _reflect(trajectory: Trajectory, deps: Deps) -> str:
    reflection_id = id_for("rf", trajectory.id)
    shown = shown_again(deps.store, trajectory.injected)
    async with deps.slots:
        with about(trajectory.task.id):
            reflection: Reflection = await deps.reflector.reflect(
                trajectory, (*shown.core, *shown.recalled), label_free=deps.config.run.label_free
            )
    deps.store.add_reflection(reflection.model_copy(update={"id": reflection_id}))
    return reflection_id
