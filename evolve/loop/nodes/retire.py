"""Last node of a batch: retires what evidence speaks against, by ordinary deltas that say why and can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.episode.skill_runtime.showing import texts
from evolve.gates.proposals import submit
from evolve.gates.review import ReviewGate
from evolve.gates.scoring import cases, limits
from evolve.loop.nodes.commit import apply
from evolve.loop.nodes.episodes import batch_episodes
from evolve.loop.state import RunContext, State
from memory.evidence import Mark
from memory.records import DeltaOp, Record, Status
from memory.utility import Case
from playbooks.contradictions import contradictions
from playbooks.retirement import retire as retirements
from skills import retirement
from skills.record import Skill

ACTOR = "retire"


async def retire(state: State, deps: RunContext) -> dict[str, Any]:
    """Retire, or queue for review, what the rules of `[forget]` name, and go to the next batch.

    What is retired for harm leaves the core at once; other removals wait for the next compaction point. Repeated after
    a crash it finds the records retired and does nothing.
    """
    batch = state.get("batch", 0)
    ops = _ops(state, deps)
    if ops and any(isinstance(gate, ReviewGate) for gate in deps.gates):
        submit(deps.store, deps.namespace, deps.stream.run_id, ops)
    elif ops:
        apply(deps, ops, deps.stream.key(batch), ACTOR)
    return {"batch": batch + 1, "core": [key for key in state.get("core", ()) if not _retired_here(key, deps)]}


def _ops(state: State, deps: RunContext) -> tuple[DeltaOp, ...]:
    settings, ops = deps.config.forget, tuple[DeltaOp, ...]()
    if settings.rules and deps.config.playbook.enabled:
        known = cases(deps.store, settings, _asked(state, deps))
        ops += retirements((*known, *_rivals(known, deps)), settings.rules, limits(settings))
    return (*ops, *_skills(deps))


def _skills(deps: RunContext) -> tuple[DeltaOp, ...]:
    skills = deps.config.skills
    if not (skills.retire and skills.enabled):
        return ()
    reading = deps.config.forget.model_copy(update={"rules": skills.retire, "unused": skills.unused})
    known = cases(deps.store, reading, deps.store.view(deps.namespace).records(Skill.kind))
    own = retirement.Limits.model_validate(skills.model_dump(include=set(retirement.Limits.model_fields)))
    return retirement.retire(known, skills.retire, own)


def _asked(state: State, deps: RunContext) -> tuple[Record[Any], ...]:
    """Return what the batch showed beside skills: of others nothing new is known. All, for a rule about idle ones."""
    if "unused" in deps.config.forget.rules:
        return tuple(r for r in deps.store.view(deps.namespace).records() if r.kind != Skill.kind)
    shown = {item.record_id for episode in batch_episodes(state, deps) for item in episode.injected}
    found = [record for key in shown if (record := deps.store.get(key)) is not None]
    return tuple(sorted((r for r in found if r.kind != Skill.kind), key=lambda record: record.number))


def _rivals(known: Sequence[Case], deps: RunContext) -> tuple[Case, ...]:
    """Return the cases of what contradicts a record that this batch spoke for or against, and was not shown itself."""
    moved = {case.record.id for case in known if any(_spoken(mark) for mark in case.evidence.marks)}
    if not moved:
        return ()
    records = texts(deps.store.view(deps.namespace))
    pairs = contradictions(records, moved)
    ids = {key for pair in pairs for key in (pair.first, pair.second)} - {case.record.id for case in known}
    return cases(deps.store, deps.config.forget, [record for record in records if record.id in ids])


def _spoken(mark: Mark) -> bool:
    return mark.age == 0 and bool(mark.counts.helpful or mark.counts.harmful)


def _retired_here(record_id: str, deps: RunContext) -> bool:
    record = deps.store.get(record_id)
    if record is None or record.status is not Status.RETIRED:
        return False
    removals = [event for event in deps.store.history(record_id) if event.type == "knowledge.remove"]
    return bool(removals) and removals[-1].data["actor"] == ACTOR
