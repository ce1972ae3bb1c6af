"""Spans of remembering, learning and training: recall, gates, commits, iterations, updates.

Pure functions with the parameters of what is watched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evolve.episode.injection import Sought
from evolve.episode.journalled_replies import asked_about
from evolve.telemetry import semconv
from evolve.telemetry.described import Attributes, Begun, Noted, evaluation
from memory.protocols import Gate, KnowledgeView
from memory.records import Commit, DeltaOp, Injection, Op, Record, Trajectory, Verdict
from policies.protocols import Policy


def recall(
    store: Any,
    config: Any,
    wanted: Sought,
    core: Sequence[Record[Any]],
    policy: Policy,
    *,
    snapshot_id: str | None = None,
) -> Begun:
    """Return the span of what is chosen to be shown for a task."""
    del store, core, policy
    about = {semconv.TASK: wanted.task.id, semconv.SNAPSHOT: snapshot_id, semconv.QUERY: lambda: wanted.text}
    return _search({semconv.STORE: config.memory.namespace, **about}, lambda shown: (*shown.core, *shown.recalled))


def search(query: str, how: Any, store: Any) -> Begun:
    """Return the span of a search that the agent made."""
    del how, store
    return _search({semconv.TASK: asked_about() or None, semconv.QUERY: lambda: query}, lambda _: ())


def _search(about: Attributes, texts: Callable[[Any], Sequence[Record[Any]]]) -> Begun:
    def memories(result: Any) -> list[dict[str, Any]]:
        return [{"id": record.id, "content": record.payload.text()} for record in texts(result)]

    def found(result: Any) -> Noted:
        shown: Sequence[Injection] = result.injected
        ids = [item.record_id for item in shown]
        return Noted({semconv.RECORDS: len(ids), semconv.BULLETS: ids, semconv.MEMORIES: lambda: memories(result)})

    return Begun("search_memory", {semconv.OPERATION: "search_memory", **about}, found)


def commit(context: Any, ops: Sequence[DeltaOp], subject: str, actor: str = "loop") -> Begun | None:
    """Return the span of a change of knowledge; none where there is nothing to change."""
    del subject, actor
    if not ops:
        return None
    kinds = {op.op for op in ops}
    new = kinds & {Op.ADD, Op.MERGE, Op.SUPERSEDE}
    operation = "update_memory" if not new else "create_memory" if kinds == {Op.ADD} else "upsert_memory"
    return Begun(
        operation,
        {
            semconv.OPERATION: operation,
            semconv.STORE: context.namespace,
            semconv.DELTA_OP: sorted(kind.value for kind in kinds),
            semconv.MEMORIES: lambda: [{"id": op.target_id, "content": op.payload} for op in ops if op.payload],
        },
        _committed,
    )


def _committed(result: Commit) -> Noted:
    ids = list(dict.fromkeys(item.record_id for item in result.applied if item.record_id))
    attributes = {
        semconv.RECORDS: len(ids),
        semconv.BULLETS: ids,
        semconv.REFUSED: len(result.refused) or None,
    }
    return Noted(
        {
            **attributes,
            semconv.RECORD: ids[0] if len(ids) == 1 else None,
            semconv.PLAYBOOK_VERSION: result.version,
        }
    )


def gate(member: Gate, ops: Sequence[DeltaOp], view: KnowledgeView, origins: Sequence[Trajectory]) -> Begun:
    """Return the span of a gate being asked; each of its answers is an event."""
    del origins
    what = {op.op_id: op.op.value for op in ops}

    def judged(verdict: Verdict) -> Noted:
        answers = [(key, "accepted") for key in verdict.accepted]
        answers += [(key, "rejected") for key in verdict.rejected]
        answers += [(key, "deferred") for key in verdict.deferred]
        return Noted(events=[_decision(member.name, key, answer, what.get(key)) for key, answer in answers])

    return Begun(
        f"evolve.gate {member.name}",
        {semconv.GATE: member.name, semconv.PLAYBOOK_VERSION: view.version},
        judged,
    )


def _decision(gate: str, op_id: str, answer: str, op: str | None) -> tuple[str, Attributes]:
    name, graded = evaluation(gate, None, answer)
    return name, {**graded, semconv.DECISION: answer, semconv.DELTA_ID: op_id, semconv.DELTA_OP: op}


def reflect(trajectory: Trajectory, batch: Any, context: Any) -> Begun:
    """Return the span of a reflection; its model calls are inside."""
    del batch, context
    return Begun("evolve.reflect", {semconv.TASK: trajectory.task.id, semconv.ROLLOUT: trajectory.id})


def curate(state: Any, context: Any) -> Begun:
    """Return the span of turning a batch's reflections into changes."""
    del state, context
    return Begun("evolve.curate", {})


def iteration(worlds: Sequence[Any], learning: Any, plan: Any, folder: Path, iteration: int) -> Begun:
    """Return the span of a batch of rollouts and what was learned from it; the episodes stand below it."""
    del worlds, learning, plan, folder
    return Begun("evolve.iteration", {semconv.ITERATION: iteration}, _figures)


def update(learning: Any, rows: Sequence[Any], advantages: Sequence[Any]) -> Begun:
    """Return the span of one update of the weights."""
    del advantages
    return Begun("evolve.update", {semconv.POLICY_VERSION: learning.policy.version, semconv.ROWS: len(rows)}, _figures)


def fitting(trainer: Any, rows: Sequence[Any], advantages: Sequence[Any]) -> Begun:
    """Return the span of one update on rows of the journal."""
    del trainer, advantages
    return Begun("evolve.update", {semconv.ROWS: len(rows)}, _figures)


def _figures(figures: Mapping[str, float]) -> Noted:
    return Noted({semconv.FIGURE + name: value for name, value in figures.items() if name != "iteration"})
