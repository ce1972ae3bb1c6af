"""Asks the reflector what each episode of the batch teaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.episode.instrumentation import watched
from evolve.episode.journalled_replies import about
from evolve.loop.batch import Batch
from evolve.loop.state import RunContext, State, batch_of
from evolve.parallel import all_of
from evolve.progress import Notice
from evolve.seeds import id_for
from evolve.usercode import awaited, broke_contract
from memory.records import Record, Reflection, Trajectory
from policies.errors import PolicyRefused


async def reflect(state: State, context: RunContext) -> dict[str, Any]:
    """Store a reflection for every episode worth one and return their ids in task order.

    Repeated after a crash, it meets the journalled replies and keeps the reflections that were stored.
    """
    if not context.config.playbook.enabled:
        return {"reflections": []}
    batch = context.batch(batch_of(state))
    chosen = [trajectory for trajectory in batch.episodes if _teaches(trajectory, context)]
    return {"reflections": await all_of(_reflect(trajectory, batch, context) for trajectory in chosen)}


def _teaches(trajectory: Trajectory, context: RunContext) -> bool:
    if not trajectory.steps:
        return False
    everything = context.config.run.label_free or context.config.playbook.reflect_on == "all"
    return everything or not trajectory.success


@watched("reflect")
async def _reflect(trajectory: Trajectory, batch: Batch, context: RunContext) -> str:
    reflection_id = id_for("rf", trajectory.id)
    shown = batch.shown(trajectory.injected)
    async with context.slots:
        with about(trajectory.task.id):
            try:
                reflection = await _asked(trajectory, (*shown.core, *shown.recalled), context)
            except PolicyRefused as refused:
                reflection = _refused(trajectory, context, refused)
    context.store.add_reflection(reflection.model_copy(update={"id": reflection_id}))
    return reflection_id


async def _asked(trajectory: Trajectory, shown: Sequence[Record[Any]], context: RunContext) -> Reflection:
    what, reflect = f"reflect() of reflector {context.reflector.name!r}", context.reflector.reflect
    reflection = await awaited(what, reflect, trajectory, shown, label_free=context.config.run.label_free)
    if not isinstance(reflection, Reflection):
        raise broke_contract(what, reflect, reflection, "memory.records.Reflection(...)")
    return reflection


def _refused(trajectory: Trajectory, context: RunContext, refused: PolicyRefused) -> Reflection:
    """Return what is kept of a reflection the policy would not write (its prompt is too long, say): the run goes on."""
    text = f"no reflection on {trajectory.task.id}: {refused}"
    context.observers.notify(Notice(run_id=context.stream.run_id, text=text))
    return Reflection(
        trajectory_id=trajectory.id, task_id=trajectory.task.id, raw=text, parsed=False, author=context.reflector.name
    )
