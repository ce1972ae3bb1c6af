"""How the good ops among many are found: in which order groups are looked at, and what waits afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from evolve.gates.ablation import Ablated
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.decisions import Round
from evolve.gates.held_out import Found, search
from evolve.statistics.decision import Decision
from memory.records import DeltaOp, Op, Provenance, Status

Signs = tuple[int, int]
SHORT = OutOfCalls("waits: too dear")


def op(name: str, *tasks: str) -> DeltaOp:
    origin = Provenance(task_ids=tasks or (name,))
    return DeltaOp(op=Op.ADD, op_id=name, payload={"content": name}, provenance=origin)


def decision(ahead: int, behind: int, *, accepted: bool = False) -> Decision:
    evidence = {"statistics": {"ahead": ahead, "behind": behind}}
    return Decision(accepted=accepted, reason="too little", status=Status.PROVISIONAL, evidence=evidence)


class Looks:
    """Accepts a group of good ops alone; what else it sees is told by `signs`. Notes what it was asked."""

    def __init__(self, signs: Signs = (1, 1), *, dear: Sequence[str] = (), half: Sequence[str] = ()) -> None:
        self.signs, self.dear, self.half = signs, dear, half
        self.asked: list[tuple[str, str]] = []
        self.rounds: list[int] = []

    async def look(
        self, before: Sequence[DeltaOp], group: Sequence[DeltaOp], rounds: Sequence[Round]
    ) -> tuple[Decision | None, OutOfCalls | None]:
        names = "".join(each.op_id for each in group)
        self.asked.append(("".join(each.op_id for each in before), names))
        self.rounds.append(len(rounds))
        if names in self.dear:
            return None, SHORT
        found = decision(2, 0, accepted=True) if names.isupper() else decision(*self.signs)
        return found, SHORT if names in self.half else None


def ablate(waiting: Mapping[str, str], short: OutOfCalls | None = None) -> object:
    async def run(before: Sequence[DeltaOp], group: Sequence[DeltaOp], made: Decision) -> Ablated:
        kept = [each for each in group if each.op_id not in waiting]
        told = {key: why for key, why in waiting.items() if key in {each.op_id for each in group}}
        rounds = [Round((each.op_id,), made) for each in kept]
        return Ablated(rounds=rounds, waiting=told, admitted=kept, short=short)

    return run


async def searched(
    names: Sequence[str | DeltaOp],
    looks: Looks,
    *,
    tried: Mapping[str, int] | None = None,
    waiting: Mapping[str, str] | None = None,
    short: OutOfCalls | None = None,
    apart: int = 0,
) -> Found:
    ops = [op(each) if isinstance(each, str) else each for each in names]
    groups = [ops[:apart], ops[apart:]]
    made: object = ablate(waiting or {}, short)
    return await search(groups, looks.look, made, tried=lambda key: (tried or {}).get(key, 0), patience=3)  # type: ignore[arg-type]


async def test_a_mixed_group_is_halved_until_good_and_bad_are_apart() -> None:
    looks = Looks()
    found = await searched("ABcDE", looks)
    assert looks.asked == [
        ("", "ABcDE"), ("", "ABc"), ("", "AB"), ("AB", "c"), ("AB", "DE")
    ]  # fmt: skip
    assert looks.rounds == [0, 1, 2, 3, 4]
    assert [each.ops for each in found.ablated] == [("A",), ("B",), ("D",), ("E",)]
    assert (found.waiting, found.short) == ({}, None)


@pytest.mark.parametrize("apart", [0, 2])
async def test_groups_are_looked_at_in_order_and_empty_ones_are_none(apart: int) -> None:
    looks = Looks()
    found = await searched("AB", looks, apart=apart)
    assert looks.asked == [("", "AB")]
    assert [each.ops for each in found.rounds] == [("A", "B")]


@pytest.mark.parametrize(
    ("signs", "tried", "waits"),
    [
        ((2, 0), {}, "ab"),
        ((2, 0), {"a": 1, "b": 2}, "a"),
        ((2, 0), {"a": 2, "b": 3}, ""),
        ((0, 2), {}, ""),
        ((0, 0), {}, ""),
    ],
)
async def test_what_looks_good_waits_for_more_as_long_as_patience_lasts(
    signs: Signs, tried: dict[str, int], waits: str
) -> None:
    looks = Looks(signs)
    found = await searched("ab", looks, tried=tried)
    assert looks.asked == [("", "ab")], "nothing speaks for a half alone"
    assert found.waiting == dict.fromkeys(waits, "waits for more: too little")


@pytest.mark.parametrize(("signs", "waits"), [((2, 1), True), ((1, 1), False), ((1, 2), False)])
async def test_one_alone_is_not_halved(signs: Signs, waits: bool) -> None:
    looks = Looks(signs)
    found = await searched("a", looks)
    assert looks.asked == [("", "a")]
    assert bool(found.waiting) is waits


async def test_what_cannot_be_afforded_waits_and_the_others_are_looked_at() -> None:
    looks = Looks(dear=["AB"])
    found = await searched("ABCd", looks)
    assert looks.asked == [("", "ABCd"), ("", "AB"), ("", "Cd"), ("", "C"), ("C", "d")]
    assert found.waiting == dict.fromkeys("AB", "waits: too dear")
    assert [each.ops for each in found.rounds] == [tuple("ABCd"), tuple("Cd"), ("C",), ("d",)]
    assert found.short is SHORT


async def test_a_look_that_was_cut_short_is_kept_and_its_ops_wait() -> None:
    found = await searched("AB", Looks(half=["AB"]))
    assert [each.ops for each in found.rounds] == [("A", "B")]
    assert (found.waiting, found.ablated) == (dict.fromkeys("AB", "waits: too dear"), [])


@pytest.mark.parametrize(
    ("short", "tried", "waits"),
    [(None, {}, "A"), (None, {"A": 1}, "A"), (None, {"A": 2}, ""), (SHORT, {"A": 2}, "A")],
)
async def test_what_leaving_out_did_not_answer_waits(
    short: OutOfCalls | None, tried: dict[str, int], waits: str
) -> None:
    found = await searched("AB", Looks(), waiting={"A": "not yet"}, short=short, tried=tried)
    assert found.waiting == dict.fromkeys(waits, "not yet")
    assert found.short is short


async def test_halves_cut_between_tasks() -> None:
    """Ops of the same tasks stay side by side."""
    looks = Looks()
    ops = [op("A", "t1"), op("x", "t2"), op("B", "t1"), op("y", "t2")]
    await searched(ops, looks)
    assert looks.asked[:2] == [("", "ABxy"), ("", "AB")]
