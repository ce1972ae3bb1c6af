"""Turns the batch's reflections into proposed changes, and journals the proposal before any gate sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolve.episode.injection import shown_again
from evolve.episode.instrumentation import watched
from evolve.episode.replies import about
from evolve.episode.skill_runtime.proposals import skill_ops
from evolve.episode.taint import tainted
from evolve.episode.trust import trust_of
from evolve.gates.events import PROPOSAL
from evolve.loop.exemplar_proposals import exemplar_ops
from evolve.loop.nodes.episodes import batch_episodes, batch_reflections
from evolve.loop.nodes.judge import judged_success
from evolve.loop.state import RunContext, State
from evolve.usercode import awaited, broke_contract
from memory.records import DeltaOp, Event, Reflection, Trajectory
from playbooks.lessons import with_origin


@watched("curate")
async def curate(state: State, deps: RunContext) -> dict[str, Any]:
    """Journal one proposal event per batch; its op ids make the commit idempotent. A proposal made already stays."""
    subject = deps.stream.key(state.get("batch", 0))
    if deps.store.events(type=PROPOSAL, subject=subject, limit=1):
        return {}
    reflections = batch_reflections(state.get("reflections", ()), deps)
    ops: Sequence[DeltaOp] = ()
    if reflections:
        async with deps.slots:
            with about(",".join(reflection.task_id for reflection in reflections)):
                ops = await _asked(reflections, deps)
    episodes = {trajectory.id: trajectory for trajectory in batch_episodes(state, deps)}
    readers = (deps.reflector, deps.curator)
    signed = [_signed(op, episodes, readers, deps) for op in ops]
    agent = (object(),)  # the agent itself read all of its episode
    signed = [*(_signed(op, episodes, agent, deps) for op in _skills(tuple(episodes.values()), deps)), *signed]
    signed = [*exemplar_ops(tuple(episodes.values()), deps), *signed]
    signed = with_origin(signed, {t.task.id: t.task.instruction for t in episodes.values()})
    submit(signed, deps, state.get("batch", 0))
    return {}


async def _asked(reflections: Sequence[Reflection], deps: RunContext) -> tuple[DeltaOp, ...]:
    what, work = f"curate() of curator {deps.curator.name!r}", deps.curator.curate
    ops = await awaited(what, work, reflections, deps.store.view(deps.namespace))
    if not isinstance(ops, Sequence) or not all(isinstance(op, DeltaOp) for op in ops):
        raise broke_contract(what, work, ops, "a sequence of memory.records.DeltaOp")
    return tuple(ops)


def submit(ops: Sequence[DeltaOp], deps: RunContext, batch: int) -> None:
    """Journal what is proposed in a batch."""
    subject, data = deps.stream.key(batch), {"ops": [op.model_dump(mode="json") for op in ops]}
    event = Event(type=PROPOSAL, namespace=deps.namespace, run_id=deps.stream.run_id, subject=subject, data=data)
    deps.store.append(event)


def _skills(episodes: Sequence[Trajectory], deps: RunContext) -> Iterator[DeltaOp]:
    """Yield what the agent itself proposed about skills, in task order."""
    for trajectory in episodes if deps.acting.skills else ():
        shown = shown_again(deps.store, trajectory.injected).skills
        success = judged_success(trajectory, deps)
        yield from skill_ops(trajectory, shown, deps.policy.profile, success=success)


def proposed(batch: int, deps: RunContext) -> tuple[DeltaOp, ...]:
    """Return the journalled proposal of a batch; nothing was proposed where there is none."""
    found = deps.store.events(type=PROPOSAL, subject=deps.stream.key(batch), limit=1)
    return tuple(DeltaOp.model_validate(op) for op in found[0].data.get("ops", ())) if found else ()


def _signed(op: DeltaOp, episodes: Mapping[str, Trajectory], readers: Sequence[object], deps: RunContext) -> DeltaOp:
    """Complete what the curator said of the origin: the run, and how far it can be trusted.

    A curator that names no episode could have read all of the batch, so all are named. `readers` are those who read
    them before the op was written.
    """
    given, label_free = op.provenance, deps.config.run.label_free
    named = [episodes[key] for key in given.trajectory_ids if key in episodes] or list(episodes.values())
    read = any(tainted(readers, deps.environment, episode, label_free=label_free) for episode in named)
    provenance = given.model_copy(
        update={
            "trust": trust_of(op, named, graded=not label_free, tainted=read),
            "trajectory_ids": tuple(t.id for t in named),
            "task_ids": tuple(dict.fromkeys(t.task.id for t in named)),
            "run_id": deps.stream.run_id,
            "author": given.author or deps.curator.name,
        }
    )
    return op.model_copy(update={"provenance": provenance})
