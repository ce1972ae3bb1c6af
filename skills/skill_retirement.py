"""Retirement of skills: a table of rules, each a reason or none. Pure; the store applies.

A skill is code that later tasks rely on, so it has to be worth something with confidence, where a rule in words must
only not be harmful for certain: it is judged by the lower bound. SAPO (arXiv 2606.08755) keeps what gains; with few and
noisy runs that takes a bound. What another skill in use requires stays. A removal is an ordinary delta, undone by
`restore`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field

from memory.evidence import Evidence
from memory.operations import op_id, removal
from memory.records import RECALLABLE, DeltaOp, Frozen, Provenance, Record
from memory.utility import Case
from skills.library import Library
from skills.record import Skill

AUTHOR = "retirement"


class UselessSkill(Frozen):
    """What is not worth enough."""

    gain: float = 0.0
    """Least lower bound of the marginal utility that gate `utility` measured, in points of success."""
    floor: float = Field(default=0.2, gt=0, lt=1)
    """Least lower bound of the utility by marks, where no gate measured it: two helpful and two harmful uses lie at
    0.19."""
    evidence: float = Field(default=4, ge=1)
    """Least count of marks, as decayed by `forget.half_life`."""


class UnusedSkill(Frozen):
    """What no task called for a long time."""

    tasks: int = Field(default=300, ge=1)
    """Tasks without a call that retire."""


class Limits(Frozen):
    """From when on evidence retires a skill: the options of each rule."""

    useless: UselessSkill = UselessSkill()
    unused: UnusedSkill = UnusedSkill()


Rule = Callable[[Case, Limits], str]
"""(a skill with what is known of its worth, limits) -> why it is retired, or an empty text."""


def useless(case: Case, limits: Limits) -> str:
    """Retire what is not worth enough with 95 % confidence: by the marginal utility where a gate measured it."""
    if case.measured is not None:
        lower, gain = case.measured.lower, limits.useless.gain
        return f"measured utility may be {lower:+.3f}; at least {gain:+g} is kept" if lower < gain else ""
    worth = case.utility
    if worth.weight < limits.useless.evidence or worth.lower >= limits.useless.floor:
        return ""
    return (
        f"utility {worth.mean:.2f} may be {worth.lower:.2f} with 95 % confidence; the floor is {limits.useless.floor:g}"
    )


def unused(case: Case, limits: Limits) -> str:
    """Retire what no task used for a long time, shown or not. A use is a mark that counts `cited` or `helpful`."""
    idle = _idle(case.evidence)
    return f"not used for {idle} tasks" if idle >= limits.unused.tasks else ""


RULES: Mapping[str, Rule] = {"useless": useless, "unused": unused}


def retire(cases: Sequence[Case], names: Sequence[str], limits: Limits) -> tuple[DeltaOp, ...]:
    """Return a REMOVE for each skill that one of the named rules retires, in order.

    Pinned skills stay, and so does what another skill in use requires, until that one is gone.
    """
    able = [case for case in cases if case.record.kind == Skill.kind and case.record.status in RECALLABLE]
    library = Library(case.record for case in able)
    ops: list[DeltaOp] = []
    for case in able:
        found = ((name, RULES[name](case, limits)) for name in names)
        name, reason = next(((name, reason) for name, reason in found if reason), ("", ""))
        if reason and not case.record.pinned and not library.required_by(case.record.payload.name):
            ops.append(removed(case.record, f"{AUTHOR}:{name}", reason))
    return tuple(ops)


def removed(record: Record[Any], author: str, reason: str) -> DeltaOp:
    """Return what takes a skill out of use, in the name of an author."""
    return removal(record, op_id("remove", author, f"{record.id}@{record.version}"), reason, Provenance(author=author))


def _idle(evidence: Evidence) -> int:
    used = (mark.age for mark in evidence.marks if mark.counts.cited or mark.counts.helpful)
    return min(used, default=evidence.born.age)
