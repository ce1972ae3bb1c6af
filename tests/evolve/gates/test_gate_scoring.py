"""What gate `utility` measured of single changes is found again for the record as it reads now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.config.model import Config
from evolve.gates.gate_events import VERDICT
from evolve.gates.scoring import cases, measured
from evolve.gates.utility import Rules, Utility
from evolve.loop.assembly import open_store
from evolve.statistics.evalues import mean_bound
from memory.records import DeltaOp, Event, Op, Task
from memory.store import Store

ALPHA = 0.1


class Tasks:
    """Ten tasks, of which the first `won` pass with a change and none without one."""

    def __init__(self, won: int) -> None:
        self.won = won

    async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> dict[str, bool | None]:
        return {task.id: ops is not None and at < self.won for at, task in enumerate(tasks)}


async def verdict(store: Store, *ops: DeltaOp, gate: str = "utility", won: int = 8) -> None:
    """Ask gate `utility` of the ops, and journal what it says."""
    tasks = [Task(id=f"t{at}", instruction="x", environment="x") for at in range(10)]
    asked = Utility(Tasks(won), tasks, 0, rounds=1, rules=Rules(alpha=ALPHA))
    made = await asked.judge(ops, store.view("default"), ())
    data = made.model_dump(mode="json") | {"gate": gate}
    store.append(Event(type=VERDICT, namespace="default", run_id="run", subject="batch", data=data))


async def test_only_the_last_verdict_on_one_change_alone_tells_its_worth(tmp_path: Path) -> None:
    config = Config.model_validate({"root": tmp_path, "memory": {"index": "exact"}})
    ops = [DeltaOp(op=Op.ADD, op_id=key, payload={"content": f"Rule {key}."}) for key in "abcd"]
    with open_store(config) as store:
        store.commit("default", ops, actor="test")
        await verdict(store, ops[0], won=3)
        await verdict(store, ops[0], won=8)
        await verdict(store, ops[1], ops[2])
        await verdict(store, ops[3], gate="held_out")
        await verdict(store, DeltaOp(op=Op.ADD, op_id="unknown", payload={"content": "x"}))
        records = {record.payload.text(): record for record in store.records("default")}
        one = records["Rule a."]
        found = measured(store, "default")
        assert set(found) == {(one.id, one.content_hash)}
        worth = (1.0,) * 8 + (0.0,) * 2
        told = found[one.id, one.content_hash]
        assert told.mean == pytest.approx(0.8)
        assert told.lower == mean_bound(worth, ALPHA)
        assert told.upper == -mean_bound(tuple(-each for each in worth), ALPHA)
        assert told.lower < told.mean < told.upper
        assert measured(store, "elsewhere") == {}
        known = cases(store, config.forget, list(records.values()))
        assert [(case.record, case.measured) for case in known] == [
            (record, told if record is one else None) for record in records.values()
        ]
        assert cases(store, config.forget, []) == ()
        store.commit(
            "default", [DeltaOp(op=Op.EDIT, op_id="e", target_id=one.id, payload={"content": "New."})], actor="test"
        )
        assert [case.measured for case in cases(store, config.forget, store.records("default"))] == [None] * 4
