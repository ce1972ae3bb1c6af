"""Lets every gate decide, in the configured order, about the proposal and what waited before it; journals verdicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from evolve.episode.instrumentation import watched
from evolve.gates.ablation_rules import cut_in, reduced, remainder
from evolve.gates.canary import Canary
from evolve.gates.decisions import HELD_BACK, rounds_of
from evolve.gates.gate_events import ALLOWANCE, VERDICT
from evolve.gates.quarantine import ADMITS
from evolve.gates.review import ReviewGate
from evolve.gates.stack import RUNS_TASKS
from evolve.loop.batch import Batch
from evolve.loop.nodes.curate import proposed
from evolve.loop.nodes.waiting import Waiting, carried, keep
from evolve.loop.state import RunContext, State, batch_of
from evolve.progress import Answered
from evolve.usercode import awaited, broke_contract
from memory.protocols import Gate, KnowledgeView
from memory.records import DeltaOp, Op, Status, Trajectory, Verdict

_CREATES = frozenset({Op.ADD, Op.MERGE, Op.SUPERSEDE, Op.EDIT, Op.RESTORE})
"""Ops that leave a record in use: it gets the verdict's status (of EDIT see `evolve.loop.nodes.commit`)."""


async def gate(state: State, context: RunContext) -> dict[str, Any]:
    """Journal one verdict per gate; a later gate sees what the earlier ones accepted. What is deferred waits."""
    batch = context.batch(batch_of(state))
    _allow(batch, context)
    known = {verdict.gate for verdict in verdicts(batch)}
    spared = {item.op.op_id: item.passed for item in carried(batch, context)}
    for member in context.gates:
        ops = [op for op in passed(batch, context) if member.name not in spared.get(op.op_id, ())]
        if not ops or member.name in known:
            continue
        view = context.store.view(context.namespace)
        verdict = await _judge(member, ops, view, _origins(batch, context))
        batch = context.batch(batch.index)  # a gate that runs tasks takes its time
        batch.append(VERDICT, verdict.model_dump(mode="json"))
        context.observers.notify(_answered(verdict, context))
    keep(batch, _waiting(batch, context), context)
    return {}


@watched("gate")
async def _judge(member: Gate, ops: Sequence[DeltaOp], view: KnowledgeView, origins: Sequence[Trajectory]) -> Verdict:
    what = f"judge() of gate {member.name!r}"
    verdict = await awaited(what, member.judge, ops, view, origins)
    if not isinstance(verdict, Verdict):
        raise broke_contract(what, member.judge, verdict, "memory.records.Verdict(...)")
    return verdict


def verdicts(batch: Batch) -> tuple[Verdict, ...]:
    """Return the journalled verdicts of a batch, in the order they were given."""
    return tuple(batch.parsed(VERDICT, Verdict.model_validate))


def entered(batch: Batch, context: RunContext) -> tuple[DeltaOp, ...]:
    """Return what the gates of a batch are asked about: what waited, then what was proposed."""
    ops = [*(item.op for item in carried(batch, context)), *proposed(batch)]
    return tuple({op.op_id: op for op in ops}.values())


def passed(batch: Batch, context: RunContext) -> tuple[DeltaOp, ...]:
    """Return the ops that every verdict so far let through, with the statuses that these give."""
    return _through(entered(batch, context), verdicts(batch), measured(batch, context))


def waiting(batch: Batch, context: RunContext) -> tuple[DeltaOp, ...]:
    """Return the ops that nothing but a person's answer stands in the way of."""
    given = verdicts(batch)
    held = {op_id: "" for verdict in given if verdict.gate == ReviewGate.name for op_id in verdict.rejected}
    held |= {op_id: reason for verdict in given for op_id, reason in verdict.evidence.get(HELD_BACK, {}).items()}
    others = [_letting(verdict, held) for verdict in given if verdict.gate != ReviewGate.name]
    found = (op for op in _through(entered(batch, context), others, measured(batch, context)) if op.op_id in held)
    return tuple(op.model_copy(update={"reason": held[op.op_id] or op.reason}) for op in found)


def _letting(verdict: Verdict, held: Mapping[str, str]) -> Verdict:
    """Return a verdict without its refusals of what was held back for a person."""
    return verdict.model_copy(
        update={"rejected": {key: why for key, why in verdict.rejected.items() if key not in held}}
    )


def measured(batch: Batch, context: RunContext) -> frozenset[str]:
    """Return the ids of what was measured before it waited."""
    return frozenset(item.op.op_id for item in carried(batch, context) if ADMITS & set(item.passed))


def _answered(verdict: Verdict, context: RunContext) -> Answered:
    return Answered(
        run_id=context.stream.run_id,
        gate=verdict.gate,
        accepted=len(verdict.accepted),
        rejected=len(verdict.rejected),
        deferred=len(verdict.deferred),
    )


def _through(ops: tuple[DeltaOp, ...], given: Sequence[Verdict], settled: Collection[str]) -> tuple[DeltaOp, ...]:
    """Return what some verdicts let through, as they left it; what is `settled` keeps the status that it has.

    The status of a verdict that measured something is that of what it measured. What passed beside it has the status
    that an earlier one measured, and is provisional where none did.
    """
    known = set[str]()
    for verdict in given:
        accepted, stopped = set(verdict.accepted), {*verdict.rejected, *verdict.deferred}
        looked = {key for each in rounds_of(verdict) for key in each.get("ops", verdict.accepted)}
        beside = known - looked if looked else set[str]()
        known |= looked
        admits = verdict.gate != Canary.name  # which only finds no harm
        ops = tuple(
            op.model_copy(update={"status": verdict.status if op.op_id in looked or not looked else Status.PROVISIONAL})
            if admits and op.op in _CREATES and op.op_id in accepted and op.op_id not in {*settled, *beside}
            else op
            for op in ops
            if op.op_id not in stopped
        )
        ops = tuple(less for op in ops if (less := reduced(op, cut_in(verdict, op.op_id))) is not None)
    return ops


def _waiting(batch: Batch, context: RunContext) -> tuple[Waiting, ...]:
    """Return the ops that a verdict of this batch deferred, with the gates that need not be asked again."""
    found = verdicts(batch)
    reasons = {key: reason for verdict in found for key, reason in verdict.deferred.items()}
    before = {item.op.op_id: item.passed for item in carried(batch, context)}
    waiting: list[Waiting] = []
    for op in entered(batch, context):
        if op.op_id in reasons:
            passing = [each for each in found if op.op_id in each.accepted]
            now = [each.gate for each in passing if rounds_of(each)]
            gates = tuple(dict.fromkeys((*before.get(op.op_id, ()), *now)))
            (left,) = _through((op,), passing, measured(batch, context))
            waiting.append(Waiting(op=left, passed=gates, reason=reasons[op.op_id]))
    return tuple(waiting)


def left_out(batch: Batch, context: RunContext) -> tuple[DeltaOp, ...]:
    """Return what the gates of a batch cut off from what they accepted, as changes of their own, for a person."""
    ops = {op.op_id: op for op in entered(batch, context)}
    found = ((op_id, cut_in(verdict, op_id)) for verdict in verdicts(batch) for op_id in verdict.cut)
    return tuple(remainder(ops[op_id], cut) for op_id, cut in found if op_id in ops)


def _origins(batch: Batch, context: RunContext) -> tuple[Trajectory, ...]:
    """Return the batch's episodes, and those that anything else the gates are asked about was written from."""
    episodes = {episode.id: episode for episode in batch.episodes}
    named = dict.fromkeys(key for op in entered(batch, context) for key in op.provenance.trajectory_ids)
    if others := [key for key in named if key not in episodes]:
        found = {episode.id: episode for episode in context.store.trajectories(ids=others)}
        episodes |= {key: found[key] for key in others if key in found}
    return tuple(episodes.values())


def _allow(batch: Batch, context: RunContext) -> None:
    """Fill the gates' purse: by what the stream has spent so far, journalled so that a resumed batch finds the same.

    Without a stream there is nothing to measure them by, and nothing is limited.
    """
    if not context.stream.tasks or not RUNS_TASKS & {member.name for member in context.gates}:
        return
    if not batch.events(ALLOWANCE):
        earlier = context.store.events(type=ALLOWANCE, run_id=context.stream.run_id)
        before = earlier[-1].data if earlier else {"calls": 0, "tasks": 0}
        calls = before["calls"] + sum(episode.usage.calls for episode in batch.episodes)
        data = {
            "calls": calls,
            "tasks": before["tasks"] + len(batch.episodes),
            "allowed": context.purse.allowance(calls),
            "spent": context.purse.spent,
            "episodes": context.purse.episodes,
        }
        batch.append(ALLOWANCE, data)
    data = batch.events(ALLOWANCE)[-1].data
    context.purse.fill(data["calls"], data["tasks"], episodes=data["episodes"])
