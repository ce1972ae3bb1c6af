"""`[gate] names = ["static", "online_ab"]` in real runs: what chance hid is journalled, and what follows from it.

X1  what is hidden is in no prompt; shown and hidden together are what recall found; a task keeps some knowledge
X2  the journalled exposures are the lots of the main arm with the episodes' outcomes, and nothing else
X3  the same history draws the same lots; a task that comes again draws anew
X4  a run that stopped anywhere goes on with the lots it had, and settles nothing twice
X5  every decision, and every e-value on the way, is made again from the journal bit for bit
X6  what helps becomes active, what harms is retired, and what was edited is tested as what it says now
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.gates.account import REPLAYS, account
from evolve.gates.decision_ledger import entries
from evolve.gates.gate_events import VERDICT
from evolve.gates.online_ab import decide, draw, item_of
from evolve.loop.assembly import make_gates, open_store
from evolve.loop.nodes import commit as commit_node
from evolve.loop.nodes.expose import EXPOSURE, trials
from evolve.loop.session import Parts, RunResult, aresume, arun
from memory.content import canonical
from memory.records import DeltaOp, Event, Op, Record, Status, Task, Verdict
from memory.store import Store
from playbooks.kinds.bullet import Bullet
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors, doors_config, password, replies

HARMFUL = "note that the red door wants the word bogus"
USELESS = "doors are best opened with a smile"
N = 120


class Kinds(Doors):
    """Doors whose tasks name their colour as their family."""

    def tasks(self, split: str) -> Sequence[Task]:
        found = super().tasks(split)
        return [task.model_copy(update={"metadata": {"family": task.instruction.split()[2]}}) for task in found]


def config_in(root: Path, **gate: Any) -> Config:
    return doors_config(
        root,
        run={"batch_size": 10},
        playbook={"reflect_on": "failures", "curator": "direct"},
        controls={"no_memory": 0.2},
        forget={"rules": []},
        gate={"names": ["static", "online_ab"], **gate, "online_ab": {"hide": 0.25}},
    )


def parts(n: int = N) -> Parts:
    policy = ScriptedPolicy(replies, name="doors", profile="compact", version="1")
    return Parts(policy=policy, environment=Kinds(n))


def plant(config: Config) -> None:
    """Add a rule that is wrong, and comes before the right one in every prompt, and one that says nothing."""
    ops = [DeltaOp(op=Op.ADD, op_id=text, payload={"content": text}) for text in (HARMFUL, USELESS)]
    with open_store(config) as store:
        assert not store.commit("default", ops, actor="test").refused


async def planted_run(root: Path, n: int = N, **gate: Any) -> tuple[Config, RunResult]:
    config = config_in(root, **gate)
    plant(config)
    return config, await arun(config, parts=parts(n))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, RunResult]:
    """One run that many tests read."""
    return asyncio.run(planted_run(tmp_path_factory.mktemp("online")))


class PowerCut(Exception):
    """Nobody expects it, so nothing is tidied up."""


def settled(store: Store) -> list[Event]:
    return [event for event in store.events(type=VERDICT) if "trial" in event.data["evidence"]]


def story(store: Store) -> dict[str, Any]:
    """Return what was hidden and what became of it, with numbers in place of ids."""
    number = {record.id: record.number for record in store.records("default")}

    def named(lots: dict[str, bool]) -> dict[str, bool]:
        return {f"{number[item.partition('@')[0]]}@{item.partition('@')[2]}": gone for item, gone in lots.items()}

    rows = [row for event in store.events(type=EXPOSURE) for row in event.data["tasks"]]
    return {
        "lots": [(row["task_id"], row["passed"], named(row["lots"])) for row in rows],
        "knowledge": [(r.number, r.payload.text(), r.status, r.version) for r in store.records("default")],
        "settled": [(event.subject.partition("/")[2], len(event.data["accepted"])) for event in settled(store)],
    }


async def test_x1_what_is_hidden_is_in_no_prompt_and_no_task_loses_everything(done: tuple[Config, RunResult]) -> None:
    config, result = done
    hidden: Counter[bool] = Counter()
    with open_store(config, read_only=True) as store:
        assert result.metrics is not None
        episodes = {(t.task.id, t.arm): t for t in store.trajectories(run_id=result.run_id)}
        for recall in store.events(type="recall"):
            assert set(recall.data["lots"]) == set(recall.data["shown"])
            for task_id, lots in recall.data["lots"].items():
                seen = {f"{i.record_id}@{i.version}" for i in episodes[task_id, "main"].injected}
                assert seen == {f"{i['record_id']}@{i['version']}" for i in recall.data["shown"][task_id]}
                assert seen.isdisjoint(item for item, gone in lots.items() if gone)
                assert seen >= {item for item, gone in lots.items() if not gone}
                assert seen
                hidden.update(lots.values())
    assert 0.2 < hidden[True] / hidden.total() < 0.3


async def test_x2_exposures_are_the_lots_with_the_outcomes_of_the_main_arm(done: tuple[Config, RunResult]) -> None:
    config, result = done
    with open_store(config, read_only=True) as store:
        control = [t for t in store.trajectories(run_id=result.run_id) if t.arm == "no_memory"]
        assert control, "no control ran beside the stream"
        main = {t.task.id: t for t in store.trajectories(run_id=result.run_id) if t.arm == "main"}
        lots = {task: lot for e in store.events(type="recall") for task, lot in e.data["lots"].items() if lot}
        rows = [row for event in store.events(type=EXPOSURE) for row in event.data["tasks"]]
        assert {row["task_id"]: row["lots"] for row in rows} == lots
        assert len(rows) == len(lots)
        assert all(row["passed"] == main[row["task_id"]].success for row in rows)
        assert {row["stratum"] for row in rows} == {"red", "blue", "green", "white", "black"}
        assert {row["probability"] for row in rows} == {0.25}


async def test_x3_the_same_history_draws_the_same(tmp_path: Path, done: tuple[Config, RunResult]) -> None:
    again, _ = await planted_run(tmp_path / "again", n=30)
    other, _ = await planted_run(tmp_path / "other", n=30)
    with open_store(again, read_only=True) as one, open_store(other, read_only=True) as two:
        assert story(one) == story(two)
        with open_store(done[0], read_only=True) as longer:
            assert story(longer)["lots"][:20] == story(one)["lots"][:20]
    await arun(again, parts=parts(30))
    with open_store(again, read_only=True) as store:
        lots = story(store)["lots"]
        (first, second) = [lot for task, _, lot in lots if task == "train-0"]
        assert first != second, "a task that came again was dealt the same lots"


def bullet(number: int, **more: Any) -> Record[Bullet]:
    text = Bullet(content=f"rule {number}")
    return Record[Bullet](id=f"r{number}", kind="bullet", number=number, payload=text, **more)


def test_x1_only_what_is_under_test_has_a_lot_and_one_item_stays() -> None:
    tested = [bullet(1), bullet(2)]
    settled = [bullet(3, status=Status.ACTIVE), bullet(4, pinned=True), bullet(5, status=Status.RETIRED)]
    assert set(draw([*tested, *settled], "k", 0, 0.25)) == {"r1@1", "r2@1"}
    assert draw(settled, "k", 0, 0.25) == draw((), "k", 0, 0.25) == draw(tested[:1], "k", 0, 0.25) == {}
    kept = [draw(tested, str(at), 0, 0.25) for at in range(400)]
    assert {len(lots) for lots in kept} == {1}
    assert 140 < sum("r1@1" in lots for lots in kept) < 260
    assert 0.18 < sum(sum(lots.values()) for lots in kept) / 400 < 0.32
    assert item_of(bullet(1, version=7)) == "r1@7"


@pytest.mark.parametrize("place", ["before commit", "after commit"])
async def test_x4_a_run_that_stopped_goes_on_and_settles_nothing_twice(
    place: str, tmp_path: Path, done: tuple[Config, RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power goes at every third batch, around the commit; once the checkpoints are lost too."""
    config = config_in(tmp_path)
    plant(config)
    apply, batches = commit_node.apply, Counter[str]()

    def cut(context: Any, ops: Any, subject: str, **by: Any) -> Any:
        batches[subject] += 1
        fails = batches[subject] == 1 and int(subject.rpartition("/")[2]) % 3 == 2
        if fails and place == "before commit":
            raise PowerCut
        result = apply(context, ops, subject, **by)
        if fails:
            raise PowerCut
        return result

    monkeypatch.setattr(commit_node, "apply", cut)
    with pytest.raises(PowerCut):
        await arun(config, parts=parts())
    stops = 1
    while True:
        if stops == 2:
            (config.workspace / "checkpoints.db").unlink()
        try:
            await aresume(config, parts=parts())
            break
        except PowerCut:
            stops += 1
    assert stops == N // 10 // 3
    with open_store(config, read_only=True) as store, open_store(done[0], read_only=True) as straight:
        assert story(store) == story(straight)
        assert store.doctor() == []


async def test_x5_decisions_and_e_values_replay_bit_for_bit(done: tuple[Config, RunResult]) -> None:
    config, _ = done
    with open_store(config, read_only=True) as store:
        rules = make_gates(config)[-1].rules  # type: ignore[attr-defined]
        standing = 0
        for event in store.events(type=EXPOSURE):
            made = trials(store, "default", event.data["standing"], before=event.seq + 1)
            again = {item: decide(trial, rules).evidence["statistics"] for item, trial in made.items()}
            assert canonical(again) == canonical(event.data["standing"])
            standing += len(again)
        assert standing > 30
        decided = settled(store)
        assert len(decided) >= 2
        for event in decided:
            evidence, verdict = event.data["evidence"], Verdict.model_validate(event.data)
            again = REPLAYS["online_ab"](evidence)
            assert canonical(again.evidence) == canonical(evidence)
            assert again.accepted == bool(verdict.accepted) == (not verdict.rejected)
            assert set(verdict.rejected.values()) == (set() if again.accepted else {again.reason})
            item = evidence["trial"]["item"]
            assert trials(store, "default", [item], before=event.seq)[item].model_dump(mode="json") == evidence["trial"]


async def test_x6_what_helps_is_active_and_what_harms_is_retired(done: tuple[Config, RunResult]) -> None:
    config, result = done
    with open_store(config, read_only=True) as store:
        known = {record.payload.text(): record for record in store.records("default")}
        assert known[HARMFUL].status is Status.RETIRED
        assert known[USELESS].status is Status.PROVISIONAL
        right = [record for text, record in known.items() if text not in (HARMFUL, USELESS)]
        assert {record.payload.text() for record in right} <= {
            f"the {color} door wants the word {password(color)}" for color in ("red", "blue", "green", "white", "black")
        }
        active = [record for record in right if record.status is Status.ACTIVE]
        assert len(active) >= 3
        lots = store.events(type="recall")[-1].data["lots"]
        assert not {item_of(record) for record in active} & {item for task in lots.values() for item in task}
        assert {record.version for record in active} == {2}
        (count,) = [count for count in account(store, result.run_id).counts if count.gate == "online_ab"]
        assert (count.accepted, count.rejected) == (len(active), 1)
        assert account(store, result.run_id).episodes == 0, "online_ab made calls of its own"


async def test_x6_the_log_names_the_rule_that_was_tried(done: tuple[Config, RunResult]) -> None:
    config, result = done
    with open_store(config, read_only=True) as store:
        tried = {event.seq for event in settled(store)}
        told = {(each.op, each.text, each.answer) for each in entries(store, result.run_id) if each.seq in tried}
        active = [record for record in store.records("default") if record.status is Status.ACTIVE]
        right = {("RESTORE", record.payload.text(), "accepted") for record in active}
    assert right
    assert told == right | {("REMOVE", HARMFUL, "rejected")}


def test_x6_what_a_rollback_brings_back_is_tested_anew(tmp_path: Path) -> None:
    with open_store(config_in(tmp_path)) as store:
        store.commit("default", [DeltaOp(op=Op.ADD, payload={"content": HARMFUL})], actor="test")
        (record,), before = store.records("default"), store.snapshot("default")
        item = item_of(record)

        def expose(task_id: str) -> int:
            row = {"task_id": task_id, "stratum": "", "probability": 0.25, "passed": False, "lots": {item: False}}
            return store.append(Event(type=EXPOSURE, namespace="default", data={"tasks": [row]})).seq

        def exposed(before: int | None = None) -> list[str]:
            return [each.task_id for each in trials(store, "default", [item], before=before)[item].exposures]

        first = expose("t1")
        store.commit("default", [DeltaOp(op=Op.REMOVE, target_id=record.id)], actor="loop")
        store.rollback("default", before.id, actor="operator")
        assert [item_of(each) for each in store.view("default").records()] == [item]
        assert exposed() == []
        expose("t2")
        assert exposed() == ["t2"]
        assert exposed(before=first + 1) == ["t1"], "a decision of before is made again from what there was"


async def test_x6_a_text_that_was_edited_is_tested_anew(tmp_path: Path) -> None:
    config, _ = await planted_run(tmp_path, n=20)
    with open_store(config) as store:
        record = next(r for r in store.records("default") if r.payload.text() == USELESS)
        edit = DeltaOp(op=Op.EDIT, target_id=record.id, payload={"content": "doors are best opened in the morning"})
        store.commit("default", [edit], actor="test")
    await arun(config, parts=parts(20))
    with open_store(config, read_only=True) as store:
        both = trials(store, "default", [f"{record.id}@1", f"{record.id}@2"])
        old, new = both.values()
        assert old.exposures
        assert new.exposures
        last = store.events(type=EXPOSURE)[-1].data["standing"]
        assert last[f"{record.id}@2"]["shown"] + last[f"{record.id}@2"]["hidden"] == len(new.exposures)


async def test_without_the_gate_nothing_is_hidden(tmp_path: Path) -> None:
    config, _ = await planted_run(tmp_path, n=20, names=["static"])
    with open_store(config, read_only=True) as store:
        assert store.events(type=EXPOSURE) == []
        assert not any(lots for e in store.events(type="recall") for lots in e.data["lots"].values())


def test_online_ab_reads_outcomes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="label_free"):
        make_gates(doors_config(tmp_path, run={"label_free": True}, gate={"names": ["online_ab"]}))
