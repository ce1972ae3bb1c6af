"""Retirement of what was learned: a table of rules, each a reason or none. Pure; the store applies.

A removal is an ordinary delta: it names its rule and what was seen, and `restore` undoes it. What is restored starts
with no evidence against it. Pinned records are never retired, candidates wait for their gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydantic import Field

from memory.operations import op_id, removal
from memory.records import RECALLABLE, DeltaOp, Frozen, Provenance
from memory.utility import Case
from playbooks.contradictions import contradictions, weaker
from playbooks.kinds.exemplar import Exemplar

AUTHOR = "retirement"


class UselessRule(Frozen):
    """What is worth too little."""

    floor: float = Field(default=0.5, gt=0, lt=1)
    """Retire when the utility is below it with 95 % confidence. 0.5 = harms as often as it helps."""
    evidence: float = Field(default=4, ge=1)
    """Least count of marks, as decayed."""


class HarmfulRule(Frozen):
    """What only did harm lately."""

    marks: int = Field(default=3, ge=1)
    """Marks of harm, with no helpful one, that retire."""
    window: int = Field(default=50, ge=1)
    """Tasks within which they lie."""


class UnusedRule(Frozen):
    """What was not shown for a long time."""

    tasks: int = Field(default=500, ge=1)
    """Tasks without being shown that retire."""


class Limits(Frozen):
    """From when on evidence retires a record: the options of each rule that has some."""

    useless: UselessRule = UselessRule()
    harmful: HarmfulRule = HarmfulRule()
    unused: UnusedRule = UnusedRule()


Rule = Callable[[Case, Sequence[Case], Limits], str]
"""(a record, those it contradicts, limits) -> why it is retired, or an empty text."""


def harmful(case: Case, rivals: Sequence[Case], limits: Limits) -> str:
    """Retire what only did harm lately: a rule that was good until the world changed."""
    recent = [mark.counts for mark in case.evidence.marks if mark.age < limits.harmful.window]
    harm = sum(counts.harmful for counts in recent)
    if harm < limits.harmful.marks or any(counts.helpful for counts in recent):
        return ""
    return f"harmful {harm} times in the last {limits.harmful.window} tasks and never helpful"


def useless(case: Case, rivals: Sequence[Case], limits: Limits) -> str:
    """Retire what is worth too little with 95 % confidence: by the marginal utility where a gate measured it."""
    if case.measured is not None:
        upper = case.measured.upper
        return f"measured utility is below {upper:+.3f} with 95 % confidence" if upper < 0 else ""
    worth = case.utility
    if worth.weight < limits.useless.evidence or worth.upper >= limits.useless.floor:
        return ""
    return (
        f"utility {worth.mean:.2f}, below {worth.upper:.2f} with 95 % confidence; the floor is {limits.useless.floor:g}"
    )


def contradicted(case: Case, rivals: Sequence[Case], limits: Limits) -> str:
    """Retire what an opposing record outdoes that was confirmed since anything last spoke for this one."""
    for rival in rivals:
        evidence = {each.record.id: each.evidence for each in (case, rival)}
        confirmed = rival.evidence.confirmed_at > case.evidence.supported_at
        if confirmed and weaker(case.record, rival.record, evidence) is case.record:
            return f"contradicts {rival.record.label}, which was confirmed since: {rival.record.payload.text()}"
    return ""


def unused(case: Case, rivals: Sequence[Case], limits: Limits) -> str:
    """Retire what was not shown for a long time."""
    idle = case.evidence.idle
    return f"not shown for {idle} tasks" if idle >= limits.unused.tasks else ""


RULES: Mapping[str, Rule] = {"harmful": harmful, "useless": useless, "contradicted": contradicted, "unused": unused}


def retire(cases: Sequence[Case], names: Sequence[str], limits: Limits) -> tuple[DeltaOp, ...]:
    """Return a REMOVE for each record that one of the named rules retires, in order of creation."""
    able = [case for case in cases if case.record.status in RECALLABLE]
    rivals = _rivals(able)
    ops: list[DeltaOp] = []
    for case in able:
        found = ((name, RULES[name](case, rivals.get(case.record.id, ()), limits)) for name in names)
        name, reason = next(((name, reason) for name, reason in found if reason), ("", ""))
        if reason and not case.record.pinned:
            key = op_id("retire", name, f"{case.record.id}@{case.record.version}")
            ops.append(removal(case.record, key, reason, Provenance(author=f"{AUTHOR}:{name}")))
    return tuple(ops)


def _rivals(cases: Sequence[Case]) -> dict[str, list[Case]]:
    by_id = {case.record.id: case for case in cases}
    found: dict[str, list[Case]] = {}
    for pair in contradictions([case.record for case in cases if case.record.kind != Exemplar.kind]):
        found.setdefault(pair.first, []).append(by_id[pair.second])
        found.setdefault(pair.second, []).append(by_id[pair.first])
    return found
