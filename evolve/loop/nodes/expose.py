"""The live test of gate `online_ab`: what chance hid from which task, what came of it, and what that says by now.

Before a batch, `hide` draws lots for the items under test; the recall event holds them. After it, `expose` journals the
exposures and a verdict on each item about which they say enough; `commit` makes of it what `settled` returns.

The version of a skill that a new one has to beat: where chance hides the new one, the task gets this one instead.

ReSkill (arXiv 2606.01619) lets each rollout draw the old or the new version. Only a version that was active is one to
go back to: a skill that never was is hidden, like any other record under test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from evolve.episode.injection import Shown
from evolve.episode.skill_runtime.shown_skills import usable
from evolve.gates.batch_screen import family
from evolve.gates.gate_events import VERDICT
from evolve.gates.online_ab import OnlineAB, OnlineTrial, decide, draw, item_of, under_test
from evolve.loop.batch import Batch
from evolve.loop.state import RunContext, State, batch_of
from evolve.statistics.decision import Decision
from evolve.statistics.evalues import Exposure
from memory.evidence import brought_back
from memory.records import DeltaOp, Event, Injection, Op, Provenance, Record, Status, Task, Trajectory, Verdict
from memory.store import Store
from skills.record import Skill

EXPOSURE = "online_ab.exposure"
RECALL = "recall"
Lots = dict[str, bool]
"""Item -> whether it was hidden, for the items that had a lot in a task."""


def turn(context: RunContext) -> int:
    """Return the place of the next batch in the history of the namespace."""
    return context.store.count_events(type=RECALL, namespace=context.namespace)


def hide(shown: Shown, task: Task, turn: int, context: RunContext) -> tuple[tuple[Injection, ...], Lots]:
    """Return what is left of what would be shown for a task, and the lots; without the gate everything, and none.

    Lots are keyed by the run's seed, the task, the record's number and `turn`: a workspace with the same history draws
    the same, and a task that comes again draws anew.
    """
    gate = _gate(context)
    if gate is None:
        return shown.injected, {}
    before = incumbents(context.store, shown.skills)
    records = (*shown.records, *before.values())
    lots = draw(records, f"{turn}/{task.id}", context.config.run.seed, gate.rules.probability)
    gone = {record.id for record in records if lots.get(item_of(record))}
    lost = _lost(shown.skills, gone - set(before))
    lots = {item: hidden for item, hidden in lots.items() if item not in map(item_of, lost)}
    gone |= {record.id for record in lost}
    return exchanged(shown.injected, gone, before), lots


def _lost(skills: Sequence[Record[Any]], gone: Collection[str]) -> list[Record[Any]]:
    """Return the skills that cannot be shown because one they call is hidden: of them nothing is learned."""
    left = [record for record in skills if record.id not in gone]
    kept = {record.id for record in usable(left).records}
    return [record for record in left if record.id not in kept]


def hidden(batch: Batch, task_id: str) -> frozenset[str]:
    """Return the ids of the records that chance hides from a task."""
    (recall,) = batch.events(RECALL)
    lots: Lots = recall.data.get("lots", {}).get(task_id, {})
    return frozenset(item.rpartition("@")[0] for item, gone in lots.items() if gone)


async def expose(state: State, context: RunContext) -> dict[str, Any]:
    """Journal one exposure event per batch, and a verdict for each of its items that is decided by now."""
    gate, batch = _gate(context), context.batch(batch_of(state))
    (recall,) = batch.events(RECALL)
    lots: Mapping[str, Lots] = recall.data.get("lots", {})
    if gate is None or not lots:
        return {}
    with context.store.journal.transaction():
        logged = batch.events(EXPOSURE)
        rows = logged[0].data["tasks"] if logged else _rows(batch.episodes, lots, gate.rules.probability)
        past = trials(context.store, context.namespace, _items(rows), before=logged[0].seq if logged else None)
        decisions = {item: decide(_longer(trial, rows), gate.rules) for item, trial in past.items()}
        if not logged:
            standing = {item: decision.evidence["statistics"] for item, decision in decisions.items()}
            batch.append(EXPOSURE, {"tasks": rows, "standing": standing})
        _decide(batch.index, decisions, context)
    return {}


def trials(
    store: Store, namespace: str, items: Collection[str], *, before: int | None = None
) -> dict[str, OnlineTrial]:
    """Return what was journalled about items of a namespace, since they were last rolled back to, up to an event."""
    until = store.journal.position() if before is None else before - 1
    events = [event for event in store.events(type=EXPOSURE, namespace=namespace) if event.seq <= until]
    back = brought_back(store.journal, [_record(item) for item in items], until)
    found: dict[str, OnlineTrial] = {}
    for item in items:
        since = back.get(_record(item), 0)
        rows = [row for event in events if event.seq > since for row in event.data.get("tasks", ())]
        found[item] = _longer(OnlineTrial(item=item), rows)
    return found


def _record(item: str) -> str:
    """Return the id of the record of which an item names a version."""
    return item.rpartition("@")[0]


def settled(batch: int, context: RunContext) -> tuple[DeltaOp, ...]:
    """Return what a batch's verdicts make of the items: active, or retired, or skills as they were before.

    Stale if one has another text by now.
    """
    found = (Verdict.model_validate(event.data) for event in _verdicts(batch, context))
    return tuple(op for verdict in found for op in _back(verdict, context) or (_op(verdict),))


def _back(verdict: Verdict, context: RunContext) -> tuple[DeltaOp, ...]:
    """Return what brings the version before back, for a skill whose new one was refused."""
    item = verdict.evidence["trial"]["item"]
    record = context.store.get(item.rpartition("@")[0])
    if verdict.accepted or record is None or record.kind != Skill.kind or item_of(record) != item:
        return ()
    ((op_id, reason),) = verdict.rejected.items()
    return reverted(context.store, record, op_id, OnlineAB.name, reason)


def _gate(context: RunContext) -> OnlineAB | None:
    return next((gate for gate in context.gates if isinstance(gate, OnlineAB)), None)


def _rows(episodes: Sequence[Trajectory], lots: Mapping[str, Lots], probability: float) -> list[dict[str, Any]]:
    """Return task, lots and outcome, in order of the stream. The no-memory control has no lots: it is not here."""
    return [
        {
            "task_id": episode.task.id,
            "stratum": family(episode.task),
            "probability": probability,
            "passed": episode.outcome.success if episode.outcome else None,
            "lots": lots[episode.task.id],
        }
        for episode in episodes
        if lots.get(episode.task.id)
    ]


def _items(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for row in rows for item in row["lots"]))


def _longer(trial: OnlineTrial, rows: Sequence[Mapping[str, Any]]) -> OnlineTrial:
    """Return the trial with what `rows` hold about its item."""
    more = [
        Exposure.model_validate({**{key: row[key] for key in row if key != "lots"}, "hidden": row["lots"][trial.item]})
        for row in rows
        if trial.item in row["lots"]
    ]
    return trial.model_copy(update={"exposures": (*trial.exposures, *more)})


def _decide(batch: int, decisions: Mapping[str, Decision], context: RunContext) -> None:
    known = {event.data["evidence"]["trial"]["item"] for event in _verdicts(batch, context)}
    subject = context.stream.key(batch, OnlineAB.name)
    for item, decision in decisions.items():
        if item not in known and decision.status is not Status.PROVISIONAL:
            record_id, _, version = item.rpartition("@")
            op = DeltaOp(op=Op.RESTORE, op_id=f"{subject}/{item}", target_id=record_id, base_version=int(version))
            data = decision.verdict(OnlineAB.name, [op]).model_dump(mode="json")
            event = Event(type=VERDICT, namespace=context.namespace, run_id=context.stream.run_id, subject=subject)
            context.store.append(event.model_copy(update={"data": data}))


def _op(verdict: Verdict) -> DeltaOp:
    record_id, _, version = verdict.evidence["trial"]["item"].rpartition("@")
    (op_id,) = (*verdict.accepted, *verdict.rejected)
    return DeltaOp(
        op=Op.RESTORE if verdict.accepted else Op.REMOVE,
        op_id=op_id,
        target_id=record_id,
        base_version=int(version),
        status=verdict.status,
        provenance=Provenance(author=OnlineAB.name),
        reason=verdict.rejected.get(op_id, f"gate {OnlineAB.name}: seen to help"),
    )


def _verdicts(batch: int, context: RunContext) -> list[Event]:
    return context.store.events(type=VERDICT, subject=context.stream.key(batch, OnlineAB.name))


def incumbent(store: Store, record: Record[Skill]) -> Record[Skill] | None:
    """Return the last active version of a skill that reads otherwise than it does now; None where there is none."""
    earlier = [each for each in store.reader.versions(record.id) if each.version < record.version]
    kept = (each for each in reversed(earlier) if each.status is Status.ACTIVE and each.payload != record.payload)
    return next(kept, None)


def incumbents(store: Store, skills: Sequence[Record[Skill]]) -> dict[str, Record[Skill]]:
    """Return record id -> the version before, of those skills that are under test and have one."""
    tested = (record for record in skills if under_test(record))
    return {record.id: old for record in tested if (old := incumbent(store, record))}


def exchanged(
    injected: Sequence[Injection], gone: Collection[str], before: Mapping[str, Record[Skill]]
) -> tuple[Injection, ...]:
    """Return what is injected: of what is `gone` nothing, but skills in the version before, where there is one."""
    kept = (item for item in injected if item.record_id not in gone or item.record_id in before)
    return tuple(
        item.model_copy(update={"version": before[item.record_id].version}) if item.record_id in gone else item
        for item in kept
    )


def reverted(store: Store, record: Record[Skill], op_id: str, author: str, reason: str) -> tuple[DeltaOp, ...]:
    """Return the ops that make the incumbent the current version again, active; empty where there is none."""
    old = incumbent(store, record)
    if old is None:
        return ()
    origin = Provenance(author=author)
    about: dict[str, Any] = {"kind": record.kind, "target_id": record.id, "provenance": origin, "reason": reason}
    payload = old.payload.model_dump(mode="json")
    text = DeltaOp(op=Op.EDIT, op_id=op_id, payload=payload, base_version=record.version, **about)
    return text, DeltaOp(op=Op.RESTORE, op_id=f"{op_id}/status", status=Status.ACTIVE, pinned=record.pinned, **about)
