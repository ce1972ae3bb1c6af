"""Last node of a batch: retires what evidence speaks against, by ordinary deltas that say why and can be undone."""

from __future__ import annotations

from typing import Any

from evolve.gates.review import ReviewGate
from evolve.proposals import submit
from evolve.skilled.showing import texts
from evolve.state import Deps, State
from evolve.worth import cases, limits
from memory.records import DeltaOp, Status
from playbooks.retirement import retire as retirements
from skills import retirement
from skills.record import Skill

ACTOR = "retire"


async def retire(state: State, deps: Deps) -> dict[str, Any]:
    """Retire, or queue for review, what the rules of `[forget]` name, and go to the next batch.

    What is retired for harm leaves the core at once; other removals wait for the next compaction point. Repeated after
    a crash it finds the records retired and does nothing.
    """
    batch = state.get("batch", 0)
    ops = _ops(deps)
    if ops and any(isinstance(gate, ReviewGate) for gate in deps.gates):
        submit(deps.store, deps.namespace, deps.stream.run_id, ops)
    elif ops:
        data = {"batch": deps.stream.key(batch)}
        deps.store.commit(deps.namespace, ops, actor=ACTOR, run_id=deps.stream.run_id, data=data)
    return {"batch": batch + 1, "core": [key for key in state.get("core", ()) if not _retired_here(key, deps)]}


def _ops(deps: Deps) -> tuple[DeltaOp, ...]:
    view = deps.store.view(deps.namespace)
    settings, skills = deps.config.forget, deps.config.skills
    ops: tuple[DeltaOp, ...] = ()
    if settings.rules and deps.config.playbook.enabled:
        ops += retirements(cases(deps.store, settings, texts(view)), settings.rules, limits(settings))
    if skills.retire and skills.enabled:
        reading = settings.model_copy(update={"rules": skills.retire, "unused": skills.unused})
        known = cases(deps.store, reading, view.records(Skill.kind))
        own = retirement.Limits.model_validate(skills.model_dump(include=set(retirement.Limits.model_fields)))
        ops += retirement.retire(known, skills.retire, own)
    return ops


def _retired_here(record_id: str, deps: Deps) -> bool:
    record = deps.store.get(record_id)
    if record is None or record.status is not Status.RETIRED:
        return False
    removals = [event for event in deps.store.history(record_id) if event.type == "knowledge.remove"]
    return bool(removals) and removals[-1].data["actor"] == ACTOR
