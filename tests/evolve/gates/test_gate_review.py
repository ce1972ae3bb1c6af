"""Gate `review`: a person's answer is all that is missing, and nothing of the run is shown before it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evolve.errors import ConfigError
from evolve.gates import review_queue
from evolve.gates.account import account, lines
from evolve.gates.decision_ledger import entries
from evolve.gates.gate_events import VERDICT
from evolve.gates.none import NoGate
from evolve.loop.assembly import make_gates, open_store
from evolve.loop.session import Parts, RunResult, arun
from memory.errors import BadInput
from memory.records import DeltaOp, Op, Status
from tests.evolve.toy_doors import COLORS, Doors, ManyDoors, doors_config, doors_policy


async def go(root: Path, **sections: Any) -> RunResult:
    config = doors_config(root, **{"run": {"batch_size": 5}, "controls": {"no_memory": 0}, **sections})
    return await arun(config, parts=Parts(policy=doors_policy(), environment=Doors(10)))


@pytest.mark.parametrize(
    "sections",
    [{"gate": {"names": ["static", "review"]}}, {"gate": {"names": ["none", "review"]}}],
    ids=["static", "none"],
)
async def test_changes_wait_and_are_applied_on_a_yes(sections: dict[str, Any], tmp_path: Path) -> None:
    result = await go(tmp_path, **sections)
    assert result.metrics is not None
    assert result.metrics.tgc == 0.0
    with open_store(doors_config(tmp_path)) as store:
        assert store.records("default") == ()
        gates = [event.data["gate"] for event in store.events(type=VERDICT, run_id=result.run_id)]
        assert gates[:2] == sections["gate"]["names"]
        assert {each.answer for each in entries(store, result.run_id) if each.gate == "review"} == {"waiting"}
        waiting = review_queue.proposals(store)
        assert {proposal.op.payload["content"].split()[1] for proposal in waiting if proposal.op.payload} == set(COLORS)
        assert review_queue.accept(store, str(waiting[0].seq), actor="ann").applied
        review_queue.reject(store, str(waiting[1].seq), actor="ann", reason="no")
        (record,) = store.records("default")
        assert record.status is Status.PROVISIONAL
        (count,) = [count for count in account(store, result.run_id).counts if count.gate == "review"]
        assert (count.accepted, count.rejected, count.waiting) == (1, 1, len(waiting) - 2)
        assert f"{count.waiting} wait for `evolve review`" in "\n".join(lines(account(store, result.run_id)))


async def test_what_was_turned_down_or_waits_does_not_wait_again(tmp_path: Path) -> None:
    section = {"gate": {"names": ["static", "review"]}}
    await go(tmp_path, **section)
    with open_store(doors_config(tmp_path)) as store:
        first = review_queue.proposals(store)
        review_queue.reject(store, str(first[0].seq), actor="ann", reason="no")
    await go(tmp_path, **section)
    with open_store(doors_config(tmp_path)) as store:
        assert [each.seq for each in review_queue.proposals(store)] == [each.seq for each in first[1:]]
        closed = [each for each in review_queue.proposals(store, decided=True) if each.decision == "repeated"]
        last = {each.reason for each in closed[-len(first) :]}
        assert last == {
            f"number {each.seq} says the same and {'was rejected' if each is first[0] else 'waits'}" for each in first
        }


async def test_what_was_measured_before_keeps_its_status(tmp_path: Path) -> None:
    gate = {"names": ["held_out", "review"], "calls_ratio": 1000, "held_out": {"first_stage": 50}}
    config = doors_config(tmp_path, run={"batch_size": 5}, controls={"no_memory": 0}, gate=gate)
    await arun(config, parts=Parts(policy=doors_policy(), environment=ManyDoors(5)))
    with open_store(config) as store:
        waiting = review_queue.proposals(store)
        assert len(waiting) == len(COLORS)
        assert {proposal.op.status for proposal in waiting} == {Status.ACTIVE}
        review_queue.accept(store, str(waiting[0].seq), actor="ann")
        assert [record.status for record in store.records("default")] == [Status.ACTIVE]


def test_a_change_is_decided_once_even_where_two_decide_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(doors_config(tmp_path)) as store:
        review_queue.submit(store, "default", "run", [DeltaOp(op=Op.ADD, payload={"content": "Greet gnus."})])
        (waiting,) = review_queue.proposals(store)
        name, before = str(waiting.seq), store.prepare

        def meanwhile(ops: Sequence[DeltaOp]) -> Any:
            review_queue.reject(store, name, actor="bea")
            return before(ops)

        monkeypatch.setattr(store, "prepare", meanwhile)
        with pytest.raises(BadInput, match="was rejected already"):
            review_queue.accept(store, name, actor="ann")
        assert store.records("default") == ()


def test_review_is_the_last_gate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gate 'static' comes after 'review'"):
        make_gates(doors_config(tmp_path, gate={"names": ["review", "static"]}))
    names = [gate.name for gate in make_gates(doors_config(tmp_path, gate={"names": ["static", "review"]}))]
    assert names == ["static", "review"]
    both = doors_config(tmp_path, gate={"names": ["none", "review"]})
    assert [gate.name for gate in make_gates(both)] == ["none", "review"]
    own = make_gates(doors_config(tmp_path, gate={"names": ["static", "review"]}), own=(NoGate(),))
    assert [gate.name for gate in own] == ["none", "review"]
