"""Changes knowledge: applies what passed the gates or queues it for review, and credits what was shown."""

from __future__ import annotations

from typing import Any

from evolve.episode.credit import Credited, tag_ops
from evolve.episode.injection import shown_again
from evolve.episode.instrumentation import watched
from evolve.episode.skill_runtime.showing import texts
from evolve.gates.proposals import submit
from evolve.gates.quarantine import is_held, unheld, withhold
from evolve.gates.review import ReviewGate
from evolve.loop.nodes.episodes import batch_episodes, batch_reflections
from evolve.loop.nodes.expose import settled
from evolve.loop.nodes.gate import left_out, measured, passed, verdicts, waiting
from evolve.loop.nodes.judge import judged_success
from evolve.loop.state import RunContext, State
from evolve.progress import Learned
from memory.records import RECALLABLE, Commit, DeltaOp, Op, Provenance
from playbooks.refine import enforce_budget, merge_duplicates
from skills.merge import duplicates
from skills.record import Skill

ACTOR = "loop"


async def commit(state: State, deps: RunContext) -> dict[str, Any]:
    """Apply the batch's ops in task order, then what was settled about items under test, then its TAGs.

    One idempotent transaction.
    """
    batch = state.get("batch", 0)
    subject = deps.stream.key(batch)
    ops, review = withhold(passed(batch, deps), verdicts(batch, deps), deps.config.gate.trust, measured(batch, deps))
    ops = unheld(ops, deps.store.records(deps.namespace)) if any(map(is_held, ops)) else ops
    asks = any(isinstance(gate, ReviewGate) for gate in deps.gates)
    cut = left_out(batch, deps) if asks else ()
    pending = submit(deps.store, deps.namespace, deps.stream.run_id, (*waiting(batch, deps), *review, *cut))
    result = apply(deps, (*ops, *settled(batch, deps), *_tags(state, deps)), subject)
    apply(deps, _statuses(ops, result, deps), subject)
    if deps.config.playbook.enabled and not asks:
        _refine(state, deps, subject)
    deps.observers.notify(
        Learned(
            run_id=deps.stream.run_id,
            batch=batch,
            applied=sum(item.applied for item in result.results[: len(ops)]),
            refused=sum(not item.applied for item in result.results[: len(ops)]),
            pending=pending,
            version=result.version,
        )
    )
    return {}


@watched("commit")
def apply(deps: RunContext, ops: tuple[DeltaOp, ...], subject: str, actor: str = ACTOR) -> Commit:
    """Commit what a batch changes, in one transaction; nothing is written where there is nothing to change."""
    if not ops:
        return Commit(namespace=deps.namespace, version=deps.store.version(deps.namespace), results=())
    return deps.store.commit(deps.namespace, ops, actor=actor, run_id=deps.stream.run_id, data={"batch": subject})


def _statuses(ops: tuple[DeltaOp, ...], result: Commit, deps: RunContext) -> tuple[DeltaOp, ...]:
    """Return what gives edited records the status of their verdict: new words are worth what was measured of them."""
    applied = {item.op_id for item in result.applied}
    edits = [op for op in ops if op.op is Op.EDIT and op.op_id in applied and op.status in RECALLABLE]
    found = [(op, record) for op in edits if (record := deps.store.get(op.target_id or "")) is not None]
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


def _tags(state: State, deps: RunContext) -> tuple[DeltaOp, ...]:
    tags = {r.trajectory_id: r.tags for r in batch_reflections(state.get("reflections", ()), deps)}
    episodes = [
        Credited(
            trajectory=trajectory,
            shown=(*shown.core, *shown.recalled),
            success=judged_success(trajectory, deps),
            skills=shown.skills,
            exemplars=shown.exemplars,
            tags=tags.get(trajectory.id, {}),
        )
        for trajectory in batch_episodes(state, deps)
        for shown in (shown_again(deps.store, trajectory.injected),)
    ]
    ops = tag_ops(episodes, deps.stream.key(state.get("batch", 0)))
    origin = Provenance(trust=deps.reporter, run_id=deps.stream.run_id)
    return tuple(op.model_copy(update={"provenance": origin}) for op in ops)


def _refine(state: State, deps: RunContext, subject: str) -> None:
    """Keep what is known small: the hard budget after every batch, merges of texts and skills at compaction points."""
    settings = deps.config.playbook
    done = deps.stream.done(state.get("batch", 0) + 1)
    if done - (state.get("core_at") or 0) >= settings.compact_every:
        view = deps.store.view(deps.namespace)
        apply(deps, merge_duplicates(texts(view), deps.config.gate.near_duplicate), subject)
        if deps.acting.skills:
            apply(deps, duplicates(view.records(Skill.kind)), subject)
    if settings.max_tokens is not None:
        records = texts(deps.store.view(deps.namespace))
        gone = enforce_budget(records, settings.max_tokens, deps.policy.count_tokens, profile=deps.policy.profile)
        apply(deps, gone, subject)
