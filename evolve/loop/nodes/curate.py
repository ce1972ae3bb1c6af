"""Turns the batch's reflections into proposed changes, and journals the proposal before any gate sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolve.episode.instrumentation import watched
from evolve.episode.journalled_replies import about
from evolve.episode.skill_runtime.skill_proposals import skill_ops
from evolve.episode.taint import tainted
from evolve.episode.trust import trust_of
from evolve.gates.gate_events import PROPOSAL
from evolve.loop.batch import Batch
from evolve.loop.exemplar_proposals import exemplar_ops
from evolve.loop.nodes.judge import judged_success
from evolve.loop.state import RunContext, State, batch_of
from evolve.usercode import awaited, broke_contract
from memory.records import DeltaOp, Reflection, Trajectory
from playbooks.lessons import with_origin


@watched("curate")
async def curate(state: State, context: RunContext) -> dict[str, Any]:
    """Journal one proposal event per batch; its op ids make the commit idempotent. A proposal made already stays."""
    batch = context.batch(batch_of(state))
    if batch.events(PROPOSAL):
        return {}
    reflections = batch.reflections(state.get("reflections", ()))
    ops: Sequence[DeltaOp] = ()
    if reflections:
        async with context.slots:
            with about(",".join(reflection.task_id for reflection in reflections)):
                ops = await _asked(reflections, context)
    batch = context.batch(batch.index)  # a curator that asks a model takes its time
    episodes = {trajectory.id: trajectory for trajectory in batch.episodes}
    readers = (context.reflector, context.curator)
    signed = [_signed(op, episodes, readers, context) for op in ops]
    agent = (object(),)  # the agent itself read all of its episode
    signed = [*(_signed(op, episodes, agent, context) for op in _skills(batch, context)), *signed]
    signed = [*exemplar_ops(tuple(episodes.values()), context), *signed]
    signed = with_origin(signed, {t.task.id: t.task.instruction for t in episodes.values()})
    submit(signed, batch)
    return {}


async def _asked(reflections: Sequence[Reflection], context: RunContext) -> tuple[DeltaOp, ...]:
    what, work = f"curate() of curator {context.curator.name!r}", context.curator.curate
    ops = await awaited(what, work, reflections, context.store.view(context.namespace))
    if not isinstance(ops, Sequence) or not all(isinstance(op, DeltaOp) for op in ops):
        raise broke_contract(what, work, ops, "a sequence of memory.records.DeltaOp")
    return tuple(ops)


def submit(ops: Sequence[DeltaOp], batch: Batch) -> None:
    """Journal what is proposed in a batch."""
    batch.append(PROPOSAL, {"ops": [op.model_dump(mode="json") for op in ops]})


def _skills(batch: Batch, context: RunContext) -> Iterator[DeltaOp]:
    """Yield what the agent itself proposed about skills, in task order."""
    for trajectory in batch.episodes if context.acting.skills else ():
        shown = batch.shown(trajectory.injected).skills
        success = judged_success(trajectory, context)
        yield from skill_ops(trajectory, shown, success=success)


def proposed(batch: Batch) -> tuple[DeltaOp, ...]:
    """Return the journalled proposal of a batch; nothing was proposed where there is none."""
    found = batch.parsed(PROPOSAL, lambda data: tuple(DeltaOp.model_validate(op) for op in data.get("ops", ())))
    return found[0] if found else ()


def _signed(op: DeltaOp, episodes: Mapping[str, Trajectory], readers: Sequence[object], context: RunContext) -> DeltaOp:
    """Complete what the curator said of the origin: the run, and how far it can be trusted.

    A curator that names no episode could have read all of the batch, so all are named. `readers` are those who read
    them before the op was written.
    """
    given, label_free = op.provenance, context.config.run.label_free
    named = [episodes[key] for key in given.trajectory_ids if key in episodes] or list(episodes.values())
    read = any(tainted(readers, context.environment, episode, label_free=label_free) for episode in named)
    provenance = given.model_copy(
        update={
            "trust": trust_of(op, named, graded=not label_free, tainted=read),
            "trajectory_ids": tuple(t.id for t in named),
            "task_ids": tuple(dict.fromkeys(t.task.id for t in named)),
            "run_id": context.stream.run_id,
            "author": given.author or context.curator.name,
        }
    )
    return op.model_copy(update={"provenance": provenance})
