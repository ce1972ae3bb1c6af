"""Rules of retirement for skills, each at its edge; what others rely on stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest

from evolve.config.sections import SkillsSection
from memory.evidence import Evidence, Mark
from memory.records import Op, Record, Status, UsageCounts
from memory.utility import Case, Measured, utility
from skills.record import Skill
from skills.skill_retirement import RULES, Limits, UnusedSkill, UselessSkill, retire

Kept = Callable[..., Record[Skill]]
H, B = UsageCounts(helpful=1), UsageCounts(harmful=1)
SHOWN, CITED = UsageCounts(injected=1), UsageCounts(injected=1, cited=1)


def case(record: Any, *marks: tuple[int, UsageCounts], **more: Any) -> Case:
    """A record with marks of (age in tasks, counts), born 400 tasks ago."""
    evidence = Evidence(Mark(0, 400, UsageCounts()), tuple(Mark(1000 - age, age, counts) for age, counts in marks))
    return Case(record, evidence, utility(evidence, 100), **more)


def retired(cases: Sequence[Case], *names: str, **limits: Any) -> list[str | None]:
    return [
        op.target_id
        for op in retire(
            cases, names or tuple(RULES), Limits(useless=UselessSkill(**limits), unused=UnusedSkill(tasks=10**6))
        )
    ]


@pytest.mark.parametrize(
    ("lower", "gain", "gone"), [(-0.001, 0.0, True), (0.0, 0.0, False), (0.04, 0.05, True), (0.06, 0.05, False)]
)
def test_what_a_gate_measured_decides_by_its_lower_bound(skill: Kept, lower: float, gain: float, gone: bool) -> None:
    measured = Measured(mean=0.2, lower=lower, upper=0.4)
    marks = [(0, H)] * 9 if gone else [(0, B)] * 9
    assert bool(retired([case(skill(1, "a"), *marks, measured=measured)], gain=gain)) is gone


@pytest.mark.parametrize(
    ("marks", "gone"),
    [
        ([(0, B)] * 4, True),
        ([(0, B)] * 3, False),
        ([(0, H)] * 2 + [(0, B)] * 2, True),
        ([(0, H)] * 3 + [(0, B)] * 2, False),
        ([(0, H)] * 4, False),
        ([(100, B)] * 7, False),
    ],
)
def test_marks_decide_once_there_are_enough(skill: Kept, marks: Any, gone: bool) -> None:
    assert bool(retired([case(skill(1, "a"), *marks)], "useless")) is gone


def test_what_nobody_used_for_long_is_retired_though_it_was_shown(skill: Kept) -> None:
    cases = [
        case(skill(1, "shown"), (5, SHOWN)),
        case(skill(2, "used"), (299, CITED), (300, CITED)),
        case(skill(3, "helped"), (299, H)),
        case(skill(4, "old"), (300, CITED)),
    ]
    ops = retire(cases, ["unused"], Limits(unused=UnusedSkill(tasks=300)))
    assert [(op.target_id, op.reason) for op in ops] == [
        ("record-1", "not used for 400 tasks"),
        ("record-4", "not used for 300 tasks"),
    ]


def test_what_another_skill_in_use_requires_stays_until_that_one_is_gone(skill: Kept) -> None:
    marks = [(0, B)] * 9
    callee, caller = case(skill(1, "a"), *marks), case(skill(2, "b", "a"), *marks)
    assert retired([callee, caller]) == ["record-2"]
    assert retired([callee, case(skill(2, "b", "a", status=Status.RETIRED))]) == ["record-1"]


def test_pinned_waiting_and_other_records_stay(skill: Kept) -> None:
    marks = [(0, B)] * 9
    records = [skill(1, "a", pinned=True), skill(2, "b", status=Status.CANDIDATE), skill(3, "c")]
    ops = retire([case(record, *marks) for record in records], ["useless"], Limits())
    assert [(op.op, op.target_id, op.base_version, op.kind) for op in ops] == [(Op.REMOVE, "record-3", 1, "skill")]
    assert ops[0].provenance.author == "retirement:useless"
    assert ops[0].reason == "utility 0.09 may be 0.01 with 95 % confidence; the floor is 0.2"


def test_the_same_case_gives_the_same_op_and_another_version_another_one(skill: Kept) -> None:
    first, again, later = (
        retire([case(skill(1, "a", version=version), *[(0, B)] * 9)], ["useless"], Limits()) for version in (1, 1, 3)
    )
    assert first == again
    assert first[0].op_id != later[0].op_id


def test_the_configuration_knows_every_rule_and_limit() -> None:
    fields = SkillsSection.model_fields
    assert set(get_args(get_args(fields["retire"].annotation)[0])) == set(RULES)
    assert issubclass(SkillsSection, Limits)
