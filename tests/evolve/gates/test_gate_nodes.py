"""In a run each gate sees what those before it let through, and the last that measures gives the status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evolve.errors import UserCodeError
from evolve.gates.decisions import Round, verdict_of
from evolve.gates.gate_events import VERDICT
from evolve.gates.review import ReviewGate
from evolve.gates.review_queue import proposals
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, arun
from evolve.progress import Answered, Learned, Progress
from evolve.statistics.decision import Decision
from memory.protocols import KnowledgeView
from memory.records import RECALLABLE, DeltaOp, Record, Status, Trajectory, Verdict
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors, doors_config, replies

Answer = Callable[[Sequence[DeltaOp]], Verdict]


class Says:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self, name: str, answer: Answer) -> None:
        self.name, self._answer = name, answer
        self.asked: list[list[str]] = []
        self.given: list[int] = []

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        self.asked.append([words(op) for op in ops])
        self.given.append(len(trajectories))
        return self._answer(ops)


def words(op: DeltaOp) -> str:
    """Return the colour that a lesson is about."""
    return str((op.payload or {})["content"]).split()[1]


def yes(name: str, status: Status, *but: str) -> Says:
    """Return a gate that accepts all with a status, but some colours."""

    def answer(ops: Sequence[DeltaOp]) -> Verdict:
        return Verdict(
            gate=name,
            accepted=tuple(op.op_id for op in ops if words(op) not in but),
            rejected={op.op_id: "no" for op in ops if words(op) in but},
            status=status,
        )

    return Says(name, answer)


class Noted:
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.told: list[Progress] = []

    def notify(self, event: Progress) -> None:
        self.told.append(event)


async def go(
    root: Path, *gates: Any, tasks: int = 5, size: int = 5, **playbook: Any
) -> tuple[list[Record[Any]], list[Progress]]:
    """Run doors and return what is in use afterwards, and what was told meanwhile."""
    config = doors_config(
        root,
        run={"tasks": tasks, "batch_size": size},
        controls={"no_memory": 0},
        playbook={"curator": "direct", **playbook},
    )
    noted = Noted()
    policy = ScriptedPolicy(replies, name="doors", profile="compact", version="1")
    await arun(config, parts=Parts(policy=policy, environment=Doors(), gates=gates), observers=[noted])
    with open_store(config, read_only=True) as store:
        return [record for record in store.records("default") if record.status in RECALLABLE], noted.told


@pytest.mark.parametrize(
    ("gates", "status"),
    [
        ((("held_out", Status.ACTIVE),), Status.ACTIVE),
        ((("held_out", Status.ACTIVE), ("canary", Status.PROVISIONAL)), Status.ACTIVE),
        ((("held_out", Status.ACTIVE), ("other", Status.PROVISIONAL)), Status.PROVISIONAL),
        ((("static", Status.PROVISIONAL), ("held_out", Status.ACTIVE)), Status.ACTIVE),
    ],
)
async def test_the_last_gate_but_the_canaries_gives_the_status(
    gates: tuple[tuple[str, Status], ...], status: Status, tmp_path: Path
) -> None:
    records, _ = await go(tmp_path, *(yes(name, given) for name, given in gates))
    assert len(records) == 5
    assert {record.status for record in records} == {status}


async def test_what_passes_beside_what_was_measured_is_not_verified_with_it(tmp_path: Path) -> None:
    def answer(ops: Sequence[DeltaOp]) -> Verdict:
        own = tuple(op.op_id for op in ops if words(op) in ("red", "blue"))
        decision = Decision(accepted=True, reason="gained", status=Status.ACTIVE, evidence={})
        return verdict_of("measures", ops, [Round(own, decision)], {})

    records, _ = await go(tmp_path, Says("measures", answer))
    verified = {words_of(record) for record in records if record.status is Status.ACTIVE}
    assert (verified, len(records)) == ({"red", "blue"}, 5)
    assert {record.status for record in records} == {Status.ACTIVE, Status.PROVISIONAL}


async def test_what_an_earlier_gate_measured_keeps_its_status_beside_what_a_later_one_does(tmp_path: Path) -> None:
    def measures(name: str, *colors: str) -> Says:
        def answer(ops: Sequence[DeltaOp]) -> Verdict:
            own = tuple(op.op_id for op in ops if words(op) in colors)
            decision = Decision(accepted=True, reason="gained", status=Status.ACTIVE, evidence={"trial": {}})
            return verdict_of(name, ops, [Round(own, decision)], {})

        return Says(name, answer)

    records, _ = await go(tmp_path, measures("first", "red"), measures("second", "blue"))
    assert {words_of(record) for record in records if record.status is Status.ACTIVE} == {"red", "blue"}


def words_of(record: Record[Any]) -> str:
    """Return the colour that a record is about."""
    return record.payload.text().split()[1]


async def test_a_gate_is_asked_about_what_those_before_it_accepted(tmp_path: Path) -> None:
    first, second = yes("first", Status.PROVISIONAL, "red"), yes("second", Status.PROVISIONAL, "blue", "green")
    records, told = await go(tmp_path, first, second)
    assert [sorted(each) for each in first.asked] == [["black", "blue", "green", "red", "white"]]
    assert [sorted(each) for each in second.asked] == [["black", "blue", "green", "white"]]
    assert first.given == second.given == [5]
    assert sorted(record.payload.text().split()[1] for record in records) == ["black", "white"]
    answers = [(each.gate, each.accepted, each.rejected, each.deferred) for each in told if isinstance(each, Answered)]
    assert answers == [("first", 4, 1, 0), ("second", 2, 2, 0)]
    (learned,) = [each for each in told if isinstance(each, Learned)]
    assert (learned.batch, learned.applied, learned.refused, learned.pending) == (0, 2, 0, 0)
    assert learned.version > 0


async def test_a_gate_that_nothing_reaches_is_not_asked(tmp_path: Path) -> None:
    never = yes("never", Status.ACTIVE)
    none = yes("none_of_it", Status.PROVISIONAL, "red", "blue", "green", "white", "black")
    records, told = await go(tmp_path, none, never)
    assert (records, never.asked) == ([], [])
    (learned,) = [each for each in told if isinstance(each, Learned)]
    assert (learned.applied, learned.refused, learned.pending) == (0, 0, 0)


def later(name: str, until: int, *, measured: bool = False) -> Says:
    """Return a gate that puts everything off until it was asked often enough, then accepts it."""
    asked: list[int] = []

    def answer(ops: Sequence[DeltaOp]) -> Verdict:
        asked.append(len(ops))
        if len(asked) < until:
            return Verdict(gate=name, accepted=(), deferred={op.op_id: f"asked {len(asked)} times" for op in ops})
        if not measured:
            return Verdict(gate=name, accepted=tuple(op.op_id for op in ops))
        decision = Decision(accepted=True, reason="", status=Status.ACTIVE, evidence={"trial": {}})
        return verdict_of(name, ops, [Round(tuple(op.op_id for op in ops), decision)], {})

    return Says(name, answer)


@pytest.mark.parametrize("measured", [True, False])
async def test_what_is_put_off_is_asked_about_with_the_next_batch(measured: bool, tmp_path: Path) -> None:
    """A gate that ran tasks for it and let it through is not asked again; one that only read it is."""
    first, second = later("first", 1, measured=measured), later("second", 2)
    _, told = await go(tmp_path, first, second, tasks=10)
    assert [len(each) for each in first.asked] == [5, 5 if measured else 10]
    assert [len(each) for each in second.asked] == [5, 10]
    assert second.asked[1][:5] == second.asked[0], "what waited comes first"
    assert second.given == [5, 10], "with the episodes that it was written from"
    deferred = [each.deferred for each in told if isinstance(each, Answered) and each.gate == "second"]
    assert deferred == [5, 0]


@pytest.mark.parametrize(("every", "kept"), [(9, 5), (10, 5), (11, 10)])
async def test_what_was_learned_twice_is_merged_at_compaction_points(every: int, kept: int, tmp_path: Path) -> None:
    records, told = await go(tmp_path, later("all", 2), tasks=10, compact_every=every)
    assert len(records) == kept
    learned = [(each.applied, each.refused) for each in told if isinstance(each, Learned)]
    assert learned == [(0, 0), (10, 0)], "merging is no lesson"


@pytest.mark.parametrize(("every", "kept"), [(5, 5), (7, 15), (10, 15), (15, 5)])
async def test_compaction_points_count_from_the_last_one(every: int, kept: int, tmp_path: Path) -> None:
    """All is learned with the third batch, at 15 tasks: that is five after the point at ten."""
    records, _ = await go(tmp_path, later("all", 3), tasks=15, compact_every=every)
    assert len(records) == kept


async def test_the_budget_of_tokens_holds_after_every_batch(tmp_path: Path) -> None:
    records, _ = await go(tmp_path / "a", yes("all", Status.PROVISIONAL))
    fewer, _ = await go(tmp_path / "b", yes("all", Status.PROVISIONAL), max_tokens=20)
    assert 0 < len(fewer) < len(records) == 5


@pytest.mark.parametrize("asks", [True, False])
async def test_where_a_person_is_asked_all_of_it_waits_and_nothing_is_merged(asks: bool, tmp_path: Path) -> None:
    gates = (yes("all", Status.ACTIVE, "red"), *((ReviewGate(),) if asks else ()))
    records, told = await go(tmp_path, *gates, tasks=10, size=10, compact_every=10)
    (learned,) = [each for each in told if isinstance(each, Learned)]
    assert (len(records), learned.applied, learned.pending) == ((0, 0, 4) if asks else (4, 4, 0))
    with open_store(doors_config(tmp_path), read_only=True) as store:
        waiting = proposals(store)
    assert {words(each.op) for each in waiting} == ({"blue", "green", "white", "black"} if asks else set())
    assert {each.op.status for each in waiting} == ({Status.ACTIVE} if asks else set())


class Wrong:
    """A gate that answers with something else than a verdict."""

    name = "wrong"

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Any:
        return True


async def test_a_gate_that_gives_no_verdict_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"judge\(\) of gate 'wrong'"):
        await go(tmp_path, Wrong())


async def test_each_verdict_is_journalled_under_its_batch(tmp_path: Path) -> None:
    await go(tmp_path, yes("first", Status.PROVISIONAL), yes("second", Status.PROVISIONAL), tasks=10)
    with open_store(doors_config(tmp_path), read_only=True) as store:
        events = store.events(type=VERDICT)
    assert [event.data["gate"] for event in events][:2] == ["first", "second"]
    assert len({event.subject for event in events[:2]}) == 1


def cutting(words_cut: int) -> Says:
    """Return a gate that accepts all and cuts the first letters off what says red."""

    def answer(ops: Sequence[DeltaOp]) -> Verdict:
        ids = tuple(op.op_id for op in ops)
        cut = {op.op_id: (("content", 0, words_cut),) for op in ops if words(op) == "red"}
        return Verdict(gate="cuts", accepted=ids, cut=cut, status=Status.ACTIVE)

    return Says("cuts", answer)


@pytest.mark.parametrize("asks", [True, False])
async def test_what_a_gate_cut_off_waits_for_a_person_as_a_text_of_its_own_where_one_is_asked(
    asks: bool, tmp_path: Path
) -> None:
    last = ReviewGate() if asks else yes("last", Status.ACTIVE)
    records, told = await go(tmp_path, cutting(len("the red door")), last)
    (learned,) = [each for each in told if isinstance(each, Learned)]
    with open_store(doors_config(tmp_path), read_only=True) as store:
        waiting = [str((each.op.payload or {})["content"]) for each in proposals(store)]
    said = waiting if asks else [record.payload.text() for record in records]
    assert (len(records), learned.pending, len(waiting)) == ((0, 6, 6) if asks else (5, 0, 0))
    assert sum("red" in text.split() for text in said) == asks, "the rest of the text comes without what was cut"
    assert ("the red door" in waiting) is asks
    assert sum("blue" in text.split() for text in said) == 1
