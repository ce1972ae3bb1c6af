"""Skills that do the same: what counts as the same, which one stays, and that nothing relied on goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.records import DeltaOp, Op, Provenance, Record, Status, UsageCounts
from memory.store import Store
from skills import merge
from skills.library import Library
from skills.merge import duplicates, normalised, similarity
from skills.record import Skill

Kept = Callable[..., Record[Skill]]
PAY = '''def pay(to: str, cents: int) -> int:
    """Pay somebody."""
    found = apps.contacts.get(to)
    if found is None:
        raise ValueError("nobody")
    total = sum(part for part in [cents, 7])
    return apps.payments.send(to=found, amount=total)
'''
RENAMED = """def give_money( who: str, money: int ) -> int:
    # another comment
    person = apps.contacts.get(who)
    if person is None:
        raise ValueError("nobody")
    amount = sum(x for x in [money, 7])
    return apps.payments.send(to=person, amount=amount)
"""
NEAR = RENAMED.replace("    return apps", "    amount = int(amount)\n    return apps").replace("give_money", "near")


@pytest.mark.parametrize(
    ("source", "alike"),
    [
        (PAY, True),
        (RENAMED, True),
        (PAY.replace('"""Pay somebody."""\n    ', ""), True),
        (PAY.replace("contacts.get", "contacts.find"), False),
        (PAY.replace("7", "8"), False),
        (PAY.replace("amount=total", "amount=cents"), False),
        (PAY.replace("amount=total", "money=total"), False),
        (PAY.replace("cents: int", "cents: float"), False),
        ("import math\n" + PAY, False),
    ],
)
def test_same_is_what_differs_in_names_of_its_own_alone(source: str, alike: bool) -> None:
    first, second = Skill(source=PAY), Skill(source=source)
    assert (normalised(first) == normalised(second)) is alike
    assert (similarity(first, second) == 1.0) is alike
    assert similarity(first, second) == similarity(second, first)


def test_other_calls_or_literals_are_never_near() -> None:
    near = similarity(Skill(source=PAY), Skill(source=NEAR))
    assert 0.8 < near < 1.0
    for old, new in (("7", "8"), ("nobody", "none"), ("contacts.get", "contacts.find")):
        assert similarity(Skill(source=PAY), Skill(source=NEAR.replace(old, new))) == 0.0


@pytest.mark.parametrize(
    ("line", "alike"), [("total = round(total)", True), ("apps.payments.send(to=each, amount=total)", False)]
)
def test_a_line_inside_a_loop_is_not_the_line_behind_it(line: str, alike: bool) -> None:
    """A call of the world that is repeated is never near one that is made once; a plain line may be."""
    head = "def pay(people: list[str]) -> int:\n    total = 0\n    for each in people:\n        total += len(each)\n"
    inside, behind = (Skill(source=f"{head}{blanks}{line}\n    return total\n") for blanks in (" " * 8, " " * 4))
    assert similarity(inside, behind) < 1.0
    assert (similarity(inside, behind) > 0.0) is alike


def test_the_shape_of_each_skill_is_computed_once(skill: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(one: Skill) -> str:
        asked.append(one.name)
        return normalised(one)

    monkeypatch.setattr(merge, "normalised", counted)
    records = [skill(number, source=PAY.replace("def pay", f"def pay_{number}")) for number in range(6)]
    (op,) = duplicates(records)
    assert len(op.parent_ids) == len(asked) == 6


def test_same_skills_become_one_and_near_ones_leave_the_best(skill: Kept) -> None:
    records = [
        skill(1, source=PAY),
        skill(2, source=RENAMED, usage=UsageCounts(helpful=5)),
        skill(3, source=NEAR),
        skill(4, "other"),
        skill(5, source=PAY.replace("def pay", "def gone"), status=Status.RETIRED),
    ]
    merge, remove = duplicates(records, 0.8)
    assert (merge.op, merge.parent_ids, merge.payload and merge.payload["source"]) == (
        Op.MERGE,
        ("record-2", "record-1"),
        RENAMED,
    )
    assert merge.reason == "the same code as skill-00001: pay"
    assert (remove.op, remove.target_id, remove.base_version) == (Op.REMOVE, "record-3", 1)
    assert remove.reason == "does nearly the same as skill-00002: give_money"
    assert duplicates(records, 0.8) == (merge, remove)
    assert [op.op for op in duplicates(records, 0.99)] == [Op.MERGE]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ({}, {}, 1),
        ({}, {"usage": UsageCounts(helpful=3)}, 2),
        ({"usage": UsageCounts(helpful=6)}, {"usage": UsageCounts(helpful=9, harmful=9)}, 1),
        ({"usage": UsageCounts(helpful=9)}, {"status": Status.ACTIVE}, 2),
        ({"status": Status.ACTIVE}, {"pinned": True}, 2),
    ],
)
def test_the_one_with_better_evidence_is_kept(
    skill: Kept, first: dict[str, Any], second: dict[str, Any], kept: int
) -> None:
    (op,) = duplicates([skill(1, source=PAY, **first), skill(2, source=RENAMED, **second)])
    assert op.parent_ids[0] == f"record-{kept}"


def test_what_is_required_or_pinned_stays(skill: Kept) -> None:
    caller = skill(3, "caller", "give_money")
    (op,) = duplicates([skill(1, source=PAY, status=Status.ACTIVE), skill(2, source=RENAMED), caller])
    assert (op.parent_ids, op.parent_versions) == (("record-2", "record-1"), (1, 1))
    both = skill(4, "both", "pay", "give_money")
    assert duplicates([skill(1, source=PAY), skill(2, source=RENAMED), both]) == ()
    assert duplicates([skill(1, source=PAY, pinned=True), skill(2, source=RENAMED, pinned=True)]) == ()


def test_the_store_applies_it_and_the_counts_of_both_stay(tmp_path: Path) -> None:
    def add(source: str, task: str) -> DeltaOp:
        return DeltaOp(
            op=Op.ADD,
            kind="skill",
            payload={"source": source},
            usage=UsageCounts(helpful=2),
            provenance=Provenance(task_ids=(task,)),
        )

    with Store.open(tmp_path / "evolve.db", embedder=HashingEmbedder(), index="exact") as store:
        store.commit("default", [add(PAY, "t1"), add(RENAMED, "t2"), add(NEAR, "t3")], actor="test")
        commit = store.commit("default", duplicates(store.view("default").records("skill"), 0.8), actor="test")
        assert [result.reason for result in commit.results] == ["", ""]
        (record,) = Library(store.view("default").records("skill")).records
        assert (record.payload.name, record.usage.helpful) == ("pay", 4)
        assert set(record.provenance.task_ids) == {"t1", "t2"}
