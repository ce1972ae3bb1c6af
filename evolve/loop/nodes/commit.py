"""Changes knowledge: applies what passed the gates or queues it for review, and credits what was shown."""

from __future__ import annotations

from typing import Any

from evolve.episode.credit import Credited, tag_ops
from evolve.episode.instrumentation import watched
from evolve.episode.skill_runtime.shown_skills import texts
from evolve.gates.quarantine import is_held, unheld, withhold
from evolve.gates.review import ReviewGate
from evolve.gates.review_queue import submit
from evolve.gates.static import options_of
from evolve.loop.batch import Batch
from evolve.loop.nodes.expose import settled
from evolve.loop.nodes.gate import left_out, measured, passed, verdicts, waiting
from evolve.loop.nodes.judge import judged_success
from evolve.loop.state import RunContext, State, batch_of
from evolve.progress import Learned
from memory.records import RECALLABLE, Commit, DeltaOp, Op, Provenance
from playbooks.refine import enforce_budget, merge_duplicates
from skills.merge import duplicates
from skills.record import Skill

ACTOR = "loop"


async def commit(state: State, context: RunContext) -> dict[str, Any]:
    """Apply the batch's ops in task order, then what was settled about items under test, then its TAGs.

    One idempotent transaction.
    """
    batch = context.batch(batch_of(state))
    subject = batch.subject
    ops, review = withhold(passed(batch, context), verdicts(batch), context.config.gate.trust, measured(batch, context))
    ops = unheld(ops, context.store.records(context.namespace)) if any(map(is_held, ops)) else ops
    asks = any(isinstance(gate, ReviewGate) for gate in context.gates)
    cut = left_out(batch, context) if asks else ()
    pending = submit(context.store, context.namespace, context.stream.run_id, (*waiting(batch, context), *review, *cut))
    result = apply(context, (*ops, *settled(batch.index, context), *_tags(state, batch, context)), subject)
    apply(context, _statuses(ops, result, context), subject)
    if context.config.playbook.enabled and not asks:
        _refine(state, context, subject)
    context.observers.notify(
        Learned(
            run_id=context.stream.run_id,
            batch=batch.index,
            applied=sum(item.applied for item in result.results[: len(ops)]),
            refused=sum(not item.applied for item in result.results[: len(ops)]),
            pending=pending,
            version=result.version,
        )
    )
    return {}


@watched("commit")
def apply(context: RunContext, ops: tuple[DeltaOp, ...], subject: str, actor: str = ACTOR) -> Commit:
    """Commit what a batch changes, in one transaction; nothing is written where there is nothing to change."""
    if not ops:
        return Commit(namespace=context.namespace, version=context.store.version(context.namespace), results=())
    return context.store.commit(
        context.namespace, ops, actor=actor, run_id=context.stream.run_id, data={"batch": subject}
    )


def apply_own(context: RunContext, ops: tuple[DeltaOp, ...], subject: str, actor: str = ACTOR) -> None:
    """Commit what follows from a record as it reads, under ids of the batch: after a rollback it has a version again
    that was changed once before."""
    apply(context, tuple(op.model_copy(update={"op_id": f"{subject}/{op.op_id}"}) for op in ops), subject, actor=actor)


def _statuses(ops: tuple[DeltaOp, ...], result: Commit, context: RunContext) -> tuple[DeltaOp, ...]:
    """Return what gives edited records the status of their verdict: new words are worth what was measured of them."""
    applied = {item.op_id for item in result.applied}
    edits = [op for op in ops if op.op is Op.EDIT and op.op_id in applied and op.status in RECALLABLE]
    found = [(op, record) for op in edits if (record := context.store.get(op.target_id or "")) is not None]
    return tuple(
        DeltaOp(
            op=Op.RESTORE,
            op_id=f"{op.op_id}/status",
            kind=op.kind,
            target_id=record.id,
            status=op.status,
            pinned=record.pinned,
            provenance=op.provenance,
        )
        for op, record in found
        if record.status is not op.status
    )


def _tags(state: State, batch: Batch, context: RunContext) -> tuple[DeltaOp, ...]:
    tags = {r.trajectory_id: r.tags for r in batch.reflections(state.get("reflections", ()))}
    episodes = [
        Credited(
            trajectory=trajectory,
            shown=(*shown.core, *shown.recalled),
            success=judged_success(trajectory, context),
            skills=shown.skills,
            exemplars=shown.exemplars,
            tags=tags.get(trajectory.id, {}),
        )
        for trajectory in batch.episodes
        for shown in (batch.shown(trajectory.injected),)
    ]
    ops = tag_ops(episodes, batch.subject)
    origin = Provenance(trust=context.reporter, run_id=context.stream.run_id)
    return tuple(op.model_copy(update={"provenance": origin}) for op in ops)


def _refine(state: State, context: RunContext, subject: str) -> None:
    """Keep what is known small: the hard budget after every batch, merges of texts and skills at compaction points."""
    settings = context.config.playbook
    done = context.stream.done(batch_of(state) + 1)
    if done - (state.get("core_at") or 0) >= settings.compact_every:
        view = context.store.view(context.namespace)
        apply_own(context, merge_duplicates(texts(view), options_of(context.config).near_duplicate), subject)
        if context.acting.skills:
            apply_own(context, duplicates(view.records(Skill.kind)), subject)
    if settings.max_tokens is not None:
        records = texts(context.store.view(context.namespace))
        gone = enforce_budget(records, settings.max_tokens, context.policy.count_tokens, profile=context.policy.profile)
        apply_own(context, gone, subject)
