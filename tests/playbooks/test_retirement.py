"""Rules of retirement, each at its edge; a removal says why, and what is restored starts anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest

from evolve.config.model import ForgetSection
from memory.evidence import Evidence, Mark
from memory.records import Op, Status, UsageCounts
from memory.utility import Case, Measured, utility
from playbooks.retirement import RULES, HarmfulRule, Limits, UnusedRule, retire

Make = Callable[..., Any]
H, B = UsageCounts(helpful=1, injected=1), UsageCounts(harmful=1, injected=1)
SHOWN = UsageCounts(injected=1)


def case(record: Any, *marks: tuple[int, UsageCounts], born: int = 0, **more: Any) -> Case:
    """A record with marks of (age in tasks, counts), the seq of each 1000 - age."""
    found = tuple(Mark(1000 - age, age, counts) for age, counts in marks)
    evidence = Evidence(Mark(born, 400, UsageCounts()), found)
    return Case(record, evidence, utility(evidence, 100), **more)


def reasons(cases: Sequence[Case], *names: str, **limits: Any) -> list[str]:
    return [op.reason for op in retire(cases, names or tuple(RULES), Limits(unused=UnusedRule(tasks=10**6), **limits))]


@pytest.mark.parametrize(
    ("marks", "retired"),
    [
        ([(40, B), (20, B), (1, B)], True),
        ([(20, B), (1, B)], False),
        ([(50, B), (20, B), (1, B)], False),
        ([(49, H), (20, B), (10, B), (1, B)], False),
        ([(50, H), (49, B), (10, B), (1, B)], True),
    ],
)
def test_harm_without_help_within_the_window(bullet: Make, marks: Any, retired: bool) -> None:
    found = reasons([case(bullet(1, "x"), *marks)], "harmful", harmful=HarmfulRule(marks=3, window=50))
    assert found == (["harmful 3 times in the last 50 tasks and never helpful"] if retired else [])


@pytest.mark.parametrize(
    ("marks", "retired"),
    [
        ([(0, B)] * 4, True),
        ([(0, B)] * 3, False),
        ([(0, B)] * 4 + [(0, H)], False),
        ([(0, B)] * 8 + [(0, H)], True),
        ([(100, B)] * 5, False),
        ([(300, H)] * 9 + [(0, B)] * 7, True),
    ],
)
def test_a_utility_that_is_low_for_certain(bullet: Make, marks: Any, retired: bool) -> None:
    assert bool(reasons([case(bullet(1, "x"), *marks)], "useless")) is retired


@pytest.mark.parametrize(("upper", "retired"), [(-0.01, True), (0.01, False)])
def test_what_a_gate_measured_counts_before_the_marks(bullet: Make, upper: float, retired: bool) -> None:
    measured = Measured(mean=upper - 0.1, lower=upper - 0.2, upper=upper)
    marks = [(0, H)] * 9 if retired else [(0, B)] * 9
    assert bool(reasons([case(bullet(1, "x"), *marks, measured=measured)], "useless")) is retired


def test_an_opposing_rule_that_is_confirmed_retires_the_stale_one(bullet: Make) -> None:
    stale = case(bullet(1, "amount must be cents"), (60, H), born=1)
    stated = case(bullet(2, "amount must be dollars"), born=990)
    assert reasons([stale, stated], "contradicted") == []
    confirmed = case(bullet(2, "amount must be dollars"), (5, H), born=990)
    (op,) = retire([confirmed, stale], ["contradicted"], Limits())
    assert (op.op, op.target_id, op.base_version) == (Op.REMOVE, "record-1", 1)
    assert op.reason == "contradicts shr-00002, which was confirmed since: amount must be dollars"
    assert op.provenance.author == "retirement:contradicted"
    later = case(bullet(1, "amount must be cents"), (1, H), born=1)
    assert [op.target_id for op in retire([later, confirmed], ["contradicted"], Limits())] == ["record-2"]


def test_age_without_use_retires_only_when_asked(bullet: Make) -> None:
    cases = [case(bullet(1, "x"), (300, SHOWN)), case(bullet(2, "y"), (299, SHOWN)), case(bullet(3, "z"))]
    ops = retire(cases, ["unused"], Limits(unused=UnusedRule(tasks=300)))
    assert [(op.target_id, op.reason) for op in ops] == [
        ("record-1", "not shown for 300 tasks"),
        ("record-3", "not shown for 400 tasks"),
    ]
    assert retire(cases, ForgetSection().rules, Limits(unused=UnusedRule(tasks=300))) == ()


def test_pinned_and_waiting_records_stay(bullet: Make) -> None:
    marks = [(0, B)] * 9
    records = [bullet(1, "x", pinned=True), bullet(2, "y", status=Status.CANDIDATE), bullet(3, "z")]
    assert [op.target_id for op in retire([case(r, *marks) for r in records], ["useless"], Limits())] == ["record-3"]


def test_the_same_case_gives_the_same_op_and_another_version_another_one(bullet: Make) -> None:
    first, again, later = (
        retire([case(bullet(1, "x", version=version), *[(0, B)] * 9)], ["useless"], Limits()) for version in (1, 1, 3)
    )
    assert first == again
    assert first[0].op_id != later[0].op_id


def test_the_configuration_knows_every_rule_and_limit() -> None:
    fields = ForgetSection.model_fields
    assert set(get_args(get_args(fields["rules"].annotation)[0])) == set(RULES)
    assert issubclass(ForgetSection, Limits)
