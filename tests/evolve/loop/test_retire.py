"""The node `retire` in real runs: stale rules go with a reason and can come back; rivals are never both shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drift_lives import Adding
from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.house_rules import RULES
from evolve.environments.office.wording import sentence
from evolve.environments.office.worker import make_worker
from evolve.episode.injection import recall_for, sought
from evolve.gates.gate_events import VERDICT
from evolve.gates.review_queue import proposals
from evolve.gates.scoring import cases
from evolve.gates.utility import UtilityTrial, decide
from evolve.loop.assembly import open_store
from evolve.loop.nodes.retire import ACTOR
from evolve.loop.session import Parts, arun
from memory.records import DeltaOp, Event, Op, Record, Reflection, Status, Task, Trajectory, UsageCounts
from memory.store import Store
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors, doors_config, doors_policy, replies


class Blaming:
    """Tags every rule that calls itself cursed as harmful, and writes nothing."""

    name = "blaming"

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        cursed = {record.id: "harmful" for record in injected if "cursed" in record.payload.text()}
        return Reflection.model_validate(
            {"trajectory_id": trajectory.id, "task_id": trajectory.task.id, "tags": cursed}
        )


def add(content: str, status: Status = Status.PROVISIONAL, *, pinned: bool = False) -> DeltaOp:
    return DeltaOp(op=Op.ADD, payload={"content": content}, status=status, pinned=pinned)


def doors(root: Path, **more: Any) -> Config:
    run = {"batch_size": 2, "tasks": 8, **more.pop("run", {})}
    return doors_config(
        root, run=run, controls={"no_memory": 0}, playbook={"curator": "direct", "compact_every": 50}, **more
    )


async def play(config: Config) -> None:
    await arun(config, parts=Parts(policy=doors_policy(), environment=Doors(8), reflector=Blaming()))


@pytest.mark.parametrize("status", [Status.PROVISIONAL, Status.ACTIVE])
async def test_a_harmful_rule_is_retired_with_a_reason_and_leaves_the_core_at_once(
    tmp_path: Path, status: Status
) -> None:
    config = doors(tmp_path)
    with open_store(config) as store:
        store.commit("default", [add("a cursed door", status), add("a blessed door", status)], actor="test")
    await play(config)
    with open_store(config) as store:
        cursed, blessed = store.records("default")
        assert (cursed.status, blessed.status) == (Status.RETIRED, status)
        removal = store.history(cursed.id)[-1]
        assert (removal.type, removal.data["actor"]) == ("knowledge.remove", ACTOR)
        assert removal.data["reason"] == "harmful 4 times in the last 50 tasks and never helpful"
        shown = [{i.record_id for i in t.injected} for t in store.trajectories()]
        assert shown == [{cursed.id, blessed.id}] * 4 + [{blessed.id}] * 4

        back = DeltaOp(op=Op.RESTORE, target_id=cursed.id, status=status)
        assert store.commit("default", [back], actor="operator").applied
    await play(config.model_copy(update={"run": config.run.model_copy(update={"tasks": 2})}))
    with open_store(config, read_only=True) as store:
        assert store.records("default")[0].status is status, "what was said before it was restored still counts"
        assert store.doctor(rebuild=False) == []


async def test_what_a_rollback_brought_back_is_retired_again_on_what_is_seen_from_then_on(tmp_path: Path) -> None:
    config = doors(tmp_path)
    with open_store(config) as store:
        store.commit("default", [add("a cursed door")], actor="test")
        before = store.snapshot("default")
    await play(config)
    with open_store(config) as store:
        assert store.records("default")[0].status is Status.RETIRED
        store.rollback("default", before.id, actor="operator")
    for tasks, status in ((2, Status.PROVISIONAL), (8, Status.RETIRED)):
        await play(config.model_copy(update={"run": config.run.model_copy(update={"tasks": tasks})}))
        with open_store(config, read_only=True) as store:
            assert store.records("default")[0].status is status


async def test_under_review_a_retirement_waits(tmp_path: Path) -> None:
    config = doors(tmp_path, gate={"names": ["static", "review"]})
    with open_store(config) as store:
        store.commit("default", [add("a cursed door")], actor="test")
    await play(config)
    with open_store(config, read_only=True) as store:
        assert store.records("default")[0].status is Status.PROVISIONAL
        (waiting,) = proposals(store, "default")
        assert (waiting.op.op, waiting.op.provenance.author) == (Op.REMOVE, "retirement:harmful")


async def test_without_rules_nothing_is_retired(tmp_path: Path) -> None:
    config = doors(tmp_path, forget={"rules": []})
    with open_store(config) as store:
        store.commit("default", [add("a cursed door")], actor="test")
    await play(config)
    with open_store(config, read_only=True) as store:
        assert store.records("default")[0].status is Status.PROVISIONAL
        assert store.records("default")[0].usage.harmful == 8


async def test_marks_count_half_after_the_half_life_that_is_set(tmp_path: Path) -> None:
    config = doors(tmp_path, forget={"rules": [], "half_life": 4})
    with open_store(config) as store:
        store.commit("default", [add("a cursed door")], actor="test")
    await play(config)
    with open_store(config, read_only=True) as store:
        records = store.view("default").records()
        (fading,) = cases(store, config.forget, records)
        (lasting,) = cases(store, config.forget.model_copy(update={"half_life": None}), records)
    ages = (6, 6, 4, 4, 2, 2, 0, 0)  # two tasks a batch
    assert fading.utility.weight == pytest.approx(sum(2 ** (-age / 4) for age in ages))
    assert lasting.utility.weight == 8


def shown(store: Store, config: Config, snapshot_id: str | None = None) -> set[str]:
    policy = ScriptedPolicy(replies, name="doors", profile="compact", version="1")
    found = recall_for(store, config, sought(Task(id="t", instruction="amount")), (), policy, snapshot_id=snapshot_id)
    return {record.payload.text() for record in found.recalled}


def test_a_refuted_rival_is_shown_no_more_live_and_as_a_snapshot_had_it(tmp_path: Path) -> None:
    config = doors(tmp_path)
    with open_store(config) as store:
        old, new = "amount must be cents", "amount must be dollars"
        _, second = store.commit("default", [add(old), add(new)], actor="test").results
        before = store.snapshot("default")
        assert shown(store, config) == {old, new}, "nothing has decided between them"
        tag = DeltaOp(op=Op.TAG, target_id=second.record_id, usage=UsageCounts(harmful=1))
        store.commit("default", [tag], actor="test", run_id="r")
        assert shown(store, config) == {old}
        assert shown(store, config, f"{before.id}@{before.position}") == {old, new}
        pin = DeltaOp(op=Op.RESTORE, target_id=second.record_id, status=Status.ACTIVE, pinned=True)
        assert store.commit("default", [pin], actor="operator").applied
        assert shown(store, config) == {new}


def test_a_measured_utility_is_read_from_the_verdict_about_that_change(tmp_path: Path) -> None:
    config = doors(tmp_path)
    with open_store(config) as store:
        op = add("a rule")
        store.commit("default", [op, add("another")], actor="test")
        cohort = tuple("abcdefghij")
        never, always = dict.fromkeys(cohort, False), dict.fromkeys(cohort, True)
        decision = decide(UtilityTrial(cohort=cohort, without=(never,), with_change=(always,)))
        verdict = decision.verdict("utility", [op])
        store.append(Event(type=VERDICT, namespace="default", data=verdict.model_dump(mode="json")))
        first, second = cases(store, config.forget, store.view("default").records())
        assert first.measured is not None
        assert (first.measured.mean, first.measured.lower) == (1.0, decision.evidence["statistics"]["lower"])
        assert second.measured is None
        edit = DeltaOp(op=Op.EDIT, target_id=first.record.id, payload={"content": "something else"})
        store.commit("default", [edit], actor="test")
        assert cases(store, config.forget, store.view("default").records())[0].measured is None


async def test_a_curator_that_only_adds_gets_rid_of_the_rule_that_the_office_dropped(tmp_path: Path) -> None:
    office = Office(OfficeConfig(deployment=3, train_tasks=48))
    rule = next(rule for rule in RULES if rule.id == "mail_to")
    stale = sentence(rule, next(option for option in rule.options if option != office.values["mail_to"]))
    config = Config.model_validate(
        {
            "root": tmp_path,
            "run": {"batch_size": 4},
            "playbook": {"reflector": "rules"},
            "environment": {"name": "office", "max_steps": 16},
            "memory": {"index": "exact"},
            "controls": {"no_memory": 0},
        }
    )
    with open_store(config) as store:
        store.commit("default", [add(stale)], actor="test")
    await arun(config, parts=Parts(policy=make_worker(office), environment=office, curator=Adding()))
    with open_store(config, read_only=True) as store:
        known = {record.payload.text(): record for record in store.records("default")}
        right = sentence(rule, office.values["mail_to"])
        assert known[stale].status is Status.RETIRED
        assert known[right].status is Status.PROVISIONAL
        reason = store.history(known[stale].id)[-1].data["reason"]
        assert reason.startswith(f"contradicts {known[right].label}, which was confirmed since")
