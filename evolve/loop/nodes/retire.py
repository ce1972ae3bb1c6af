"""Last node of a batch: retires what evidence speaks against, by ordinary deltas that say why and can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.episode.skill_runtime.shown_skills import NO_TEXT
from evolve.gates.review import ReviewGate
from evolve.gates.review_queue import submit
from evolve.gates.scoring import cases
from evolve.loop.nodes.commit import apply_own
from evolve.loop.state import RunContext, State, batch_of
from memory.evidence import Mark
from memory.records import RECALLABLE, DeltaOp, Record, Status
from memory.utility import Case
from playbooks.contradictions import comparable, contradictions
from playbooks.retirement import retire as retirements
from skills import skill_retirement
from skills.record import Skill

ACTOR = "retire"


async def retire(state: State, context: RunContext) -> dict[str, Any]:
    """Retire, or queue for review, what the rules of `[forget]` name, and go to the next batch.

    What is retired for harm leaves the core at once; other removals wait for the next compaction point. Repeated after
    a crash it finds the records retired and does nothing.
    """
    batch = batch_of(state)
    ops = _ops(state, context)
    if ops and any(isinstance(gate, ReviewGate) for gate in context.gates):
        submit(context.store, context.namespace, context.stream.run_id, ops)
    elif ops:
        apply_own(context, ops, context.stream.key(batch), ACTOR)
    core = state.get("core", [])
    gone = {record.id for record in context.store.load(core) if _retired_here(record, context)}
    return {"batch": batch + 1, "core": [key for key in core if key not in gone]}


def _ops(state: State, context: RunContext) -> tuple[DeltaOp, ...]:
    settings, ops = context.config.forget, tuple[DeltaOp, ...]()
    if settings.rules and context.config.playbook.enabled:
        known = cases(context.store, settings, _asked(state, context))
        ops += retirements((*known, *_rivals(known, context)), settings.rules, settings)
    return (*ops, *_skills(context))


def _skills(context: RunContext) -> tuple[DeltaOp, ...]:
    skills = context.config.skills
    if not (skills.retire and skills.enabled and context.config.playbook.enabled):
        return ()
    reading = context.config.forget.model_copy(update={"rules": skills.retire, "unused": skills.unused})
    known = cases(context.store, reading, context.store.view(context.namespace).records(Skill.kind))
    return skill_retirement.retire(known, skills.retire, skills)


def _asked(state: State, context: RunContext) -> tuple[Record[Any], ...]:
    """Return what the batch showed beside skills: of others nothing new is known. All, for a rule about idle ones."""
    if "unused" in context.config.forget.rules:
        return tuple(r for r in context.store.view(context.namespace).records() if r.kind != Skill.kind)
    shown = {item.record_id for episode in context.batch(batch_of(state)).episodes for item in episode.injected}
    found = (record for record in context.store.load(sorted(shown)) if record.kind != Skill.kind)
    return tuple(sorted(found, key=lambda record: record.number))


def _rivals(known: Sequence[Case], context: RunContext) -> tuple[Case, ...]:
    """Return the cases of what contradicts a record that this batch spoke for or against, and was not shown itself."""
    moved = [case.record for case in known if any(_spoken(mark) for mark in case.evidence.marks)]
    shown = [record for record in moved if record.status in RECALLABLE and record.kind not in NO_TEXT]
    if not shown:
        return ()
    records = comparable(shown, context.store.view(context.namespace))
    pairs = contradictions(records, {record.id for record in shown})
    ids = {key for pair in pairs for key in (pair.first, pair.second)} - {case.record.id for case in known}
    return cases(context.store, context.config.forget, [record for record in records if record.id in ids])


def _spoken(mark: Mark) -> bool:
    return mark.age == 0 and bool(mark.counts.helpful or mark.counts.harmful)


def _retired_here(record: Record[Any], context: RunContext) -> bool:
    if record.status is not Status.RETIRED:
        return False
    removals = [event for event in context.store.history(record.id) if event.type == "knowledge.remove"]
    return bool(removals) and removals[-1].data["actor"] == ACTOR
