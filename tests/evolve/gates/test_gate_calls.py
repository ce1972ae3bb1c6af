"""What gates may spend, and what becomes of the changes that must wait for it.

C1  the calls of gates never exceed `gate.calls_ratio` times the stream's so far, whatever is proposed
C2  what cannot be judged waits: it is in no prompt and is judged with later batches; a killed run waits for the same
C3  where nothing depends on a seed, episodes are shared with earlier looks and with the stream; else they are not
C4  an edit takes the status of its verdict; the estimate at the start names the gates' calls
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.gates.account import account
from evolve.gates.call_budget import CallBudget, OutOfCalls
from evolve.gates.evaluator import episodes_of
from evolve.gates.gate_events import ALLOWANCE, VERDICT, WAITING
from evolve.gates.splits import slices, stratified
from evolve.loop.assembly import open_store
from evolve.loop.controls import FREE_ADVANCE, WorldCost, estimate, gate_advance
from evolve.loop.session import Parts, RunResult, aresume, arun
from memory.errors import EvolveError
from memory.records import DeltaOp, Op, Status, Task, Trajectory, Usage, Verdict
from memory.scratch import sweep
from memory.store import Store
from playbooks.curator import DirectCurator
from policies.errors import PolicyUnavailable
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors, doors_config, replies


def office_config(root: Path, tasks: int = 16, **gate: Any) -> Config:
    return Config.model_validate(
        {
            "root": root,
            "memory": {"index": "exact", "recall_k": 40},
            "run": {"tasks": tasks},
            "environment": {"max_steps": 16},
            "playbook": {"reflector": "rules", "curator": "direct"},
            "controls": {"no_memory": 0},
            "gate": {
                "names": ["static", "batch_screen", "held_out"],
                "calls_advance": 0,
                **gate,
                "held_out": {"tasks": 12},
            },
        }
    )


async def work(config: Config, **parts: Any) -> RunResult:
    office = Office(OfficeConfig(deployment=3))
    return await arun(config, parts=Parts(**{"policy": make_worker(office), "environment": office} | parts))


def spending(store: Store, run_id: str) -> list[tuple[int, int]]:
    """Return, for each batch, what the stream had spent and what the gates had at its end."""
    allowances = store.events(type=ALLOWANCE, run_id=run_id)
    total = sum(episode.usage.calls for episode in store.trajectories(run_id=episodes_of(run_id)))
    ends = [*(event.data["spent"] for event in allowances[1:]), total]
    return [(event.data["calls"], end) for event, end in zip(allowances, ends, strict=True)]


def anonymous(store: Store, said: Any) -> Any:
    """Return JSON values with each op named by its place among all that were proposed: ids contain the run's."""
    text = json.dumps(said)
    for at, op in enumerate(op for event in store.events(type="proposal") for op in event.data["ops"]):
        text = text.replace(op["op_id"], f"op {at}")
    return json.loads(text)


@pytest.mark.parametrize("ratio", [0.5, 4.0])
async def test_c1_c2_gates_stay_below_their_ratio_and_nothing_is_lost(ratio: float, tmp_path: Path) -> None:
    config = office_config(tmp_path, calls_ratio=ratio)
    result = await work(config)
    with open_store(config, read_only=True) as store:
        rows = spending(store, result.run_id)
        assert len(rows) == 4
        assert all(gates <= ratio * stream for stream, gates in rows)
        verdicts = [Verdict.model_validate(event.data) for event in store.events(type=VERDICT)]
        assert any(verdict.deferred for verdict in verdicts), "nothing had to wait"
        waiting = {item["op"]["op_id"] for item in store.events(type=WAITING)[-1].data["waiting"]}
        proposed = {op["op_id"] for event in store.events(type="proposal") for op in event.data["ops"] if op["payload"]}
        decided = {key for v in verdicts for key in v.rejected}
        decided |= {key for v in verdicts if v.gate == "held_out" for key in v.accepted}
        assert proposed <= decided | waiting, "a change was dropped"
        assert not decided & waiting
        known = {record.payload.text() for record in store.view("default").records()}
        assert known <= set(Office(OfficeConfig(deployment=3)).oracle)
        assert bool(known) is (ratio == 4.0)


async def test_c2_a_run_that_stops_while_changes_wait_ends_as_if_it_had_not(tmp_path: Path) -> None:
    found: list[Any] = []
    for stop in (None, 60, 120):
        config = office_config(tmp_path / str(stop), tasks=12, held_out={"tasks": 12}, calls_ratio=4)
        office = Office(OfficeConfig(deployment=3))
        worker, made = make_worker(office), 0

        async def refusing(*arguments: Any, _worker: Any = worker, _stop: int | None = stop) -> Any:
            nonlocal made
            made += 1
            if made == _stop:
                raise PolicyUnavailable("the server went away")
            return await type(_worker).generate(_worker, *arguments)

        worker.generate = refusing
        parts = Parts(policy=worker, environment=office)
        if stop is None:
            result = await arun(config, parts=parts)
        else:
            with pytest.raises(PolicyUnavailable):
                await arun(config, parts=parts)
            result = await aresume(config, parts=parts)
        with open_store(config, read_only=True) as store:
            verdicts = anonymous(store, [event.data for event in store.events(type=VERDICT)])
            known = sorted((r.payload.text(), r.status) for r in store.view("default").records())
            assert all(gates <= 4 * stream for stream, gates in spending(store, result.run_id))
            found.append((verdicts, known))
    assert found[0][1]
    assert found[1:] == found[:1] * 2


class Sampling(Office):
    seedless = False


@pytest.mark.parametrize("kind", ["seedless", "seeded", "sampling"])
async def test_c3_only_what_depends_on_no_seed_is_shared(kind: str, tmp_path: Path) -> None:
    office = (Sampling if kind == "seeded" else Office)(OfficeConfig(deployment=3))
    config = office_config(tmp_path, tasks=8, names=["batch_screen"], calls_ratio=1000)
    policy = config.policy.model_copy(update={"temperature": 0.5 if kind == "sampling" else 0.0})
    config = config.model_copy(update={"policy": policy})
    result = await work(config, environment=office, policy=make_worker(office))
    with open_store(config, read_only=True) as store:
        first = Verdict.model_validate(store.events(type=VERDICT)[0].data)
        asked = {task for each in first.evidence["rounds"] for task in each["trial"]["cohort"]}
        runs = [e for e in store.trajectories(run_id=episodes_of(result.run_id)) if e.task.id in asked]
        bare = [e for e in runs if not e.injected]
        assert len(bare) == (0 if kind == "seedless" else len(asked)), "the base is the stream's own episode"


@pytest.mark.parametrize("kind", ["seedless", "seeded"])
async def test_c3_a_look_runs_no_task_that_is_shown_the_same_in_both_arms(kind: str, tmp_path: Path) -> None:
    office = (Sampling if kind == "seeded" else Office)(OfficeConfig(deployment=3))
    config = office_config(tmp_path, tasks=24, calls_ratio=1000)
    few = config.memory.model_copy(update={"recall_k": 3})  # so that a rule is in some prompts only
    config = config.model_copy(update={"memory": few})
    await work(config, environment=office, policy=make_worker(office))
    with open_store(config, read_only=True) as store:
        verdicts = [Verdict.model_validate(event.data) for event in store.events(type=VERDICT)]
    trials = [each["trial"] for v in verdicts if v.gate == "held_out" for each in v.evidence.get("rounds", ())]
    run = [len(trial["base"]) for trial in trials]
    assert run == [len(trial["candidate"]) for trial in trials]
    if kind == "seeded":
        assert run == [len(trial["cohort"]) for trial in trials]
    else:
        assert 0 < sum(run) < sum(len(trial["cohort"]) for trial in trials)


def test_c1_the_purse_counts_what_is_paid_once() -> None:
    def episode(name: str, calls: int) -> Trajectory:
        return Trajectory(id=name, task=Task(id=name, instruction=""), usage=Usage(calls=calls))

    purse = CallBudget(2.0, [episode("a", 7), episode("b", 5)])
    purse.fill(stream_calls=20, stream_episodes=4, episodes=1)
    assert (purse.spent, purse.left, purse.knows("a"), purse.knows("b")) == (7, 33.0, True, False)
    purse.ask(6, 16)
    with pytest.raises(OutOfCalls, match="about 35 calls are needed and 33 are left"):
        purse.ask(7, 16)
    with pytest.raises(OutOfCalls, match="about 40"):
        purse.ask(4, 16, times=2)
    assert [purse.reserve(count, 16) for count in (1, 2, 3)] == [1, 2, 2]
    with pytest.raises(OutOfCalls, match="an episode could need more than the 33"):
        purse.reserve(1, 34)
    for _ in range(2):
        purse.pay(episode("b", 5))
    purse.pay(episode("a", 7))
    assert (purse.spent, purse.episodes) == (12, 2)
    assert issubclass(OutOfCalls, EvolveError)


def test_c1_what_fits_to_the_last_call_is_begun() -> None:
    purse = CallBudget(1.0)
    purse.fill(stream_calls=30, stream_episodes=3)
    purse.ask(3, 30)
    purse.ask(0, 99)
    assert purse.reserve(5, 30) == 1
    assert purse.reserve(5, 10) == 3
    for episodes, most in ((4, 30), (3, 31), (1, 31)):
        with pytest.raises(OutOfCalls):
            purse.ask(episodes, most)
    with pytest.raises(OutOfCalls):
        purse.reserve(1, 31)
    purse.pay(Trajectory(id="a", task=Task(id="a", instruction=""), usage=Usage(calls=45)))
    assert purse.left == -15
    for ask in (lambda: purse.ask(1, 1), lambda: purse.reserve(1, 1)):
        with pytest.raises(OutOfCalls, match=r"\b0 (are|calls) left"):
            ask()


def test_c1_a_purse_that_was_never_filled_has_no_bottom() -> None:
    purse = CallBudget(1.0)
    purse.ask(1000, 1000)
    assert (purse.left, purse.spent, purse.episodes) == (float("inf"), 0, 0)
    purse.fill(stream_calls=0, stream_episodes=0)
    assert purse.left == 0
    with pytest.raises(OutOfCalls, match="about 0 calls are needed and 0 are left"):
        purse.ask(1, 1)


def test_c1_an_advance_comes_on_top_of_the_ratio() -> None:
    purse = CallBudget(2.0, advance=100)
    found: list[float] = []
    for calls in (0, 10, 50, 80):
        purse.fill(stream_calls=calls, stream_episodes=1)
        found.append(purse.left)
    assert found == [100.0, 120.0, 200.0, 260.0]


def test_c1_calls_that_cost_nothing_have_an_advance_and_others_have_none() -> None:
    assert gate_advance(Config(), free=True) == FREE_ADVANCE
    assert gate_advance(Config(), free=False) == 0
    assert gate_advance(Config.model_validate({"gate": {"calls_advance": 30}}), free=False) == 30


async def test_c1_the_first_lessons_of_a_short_run_are_measured_within_it(tmp_path: Path) -> None:
    config = office_config(tmp_path, calls_advance="auto")
    result = await work(config)
    with open_store(config, read_only=True) as store:
        rows = spending(store, result.run_id)
        assert all(gates <= FREE_ADVANCE + 2 * stream for stream, gates in rows)
        assert account(store, result.run_id).counts[-1].accepted > 0
        assert store.events(type=ALLOWANCE)[-1].data["allowed"] == FREE_ADVANCE + 2 * rows[-1][0]


async def test_c4_an_edit_takes_the_status_of_its_verdict(tmp_path: Path) -> None:
    class Editor(DirectCurator):
        async def curate(self, reflections: Any, view: Any) -> tuple[DeltaOp, ...]:
            if known := view.records():
                text = {"content": f"{known[0].payload.text()} (and only that)"}
                return (DeltaOp(op=Op.EDIT, target_id=known[0].id, base_version=known[0].version, payload=text),)
            return (await super().curate(reflections, view))[:1]

    gate = {"names": ["static"]}
    config = doors_config(tmp_path, run={"batch_size": 5}, controls={"no_memory": 0}, gate=gate)
    policy = ScriptedPolicy(replies, name="doors", profile="compact", version="1")
    parts = Parts(policy=policy, environment=Doors(5), curator=Editor())
    await arun(config, parts=parts)
    with open_store(config) as store:
        (record,) = store.view("default").records()
        promote = DeltaOp(op=Op.RESTORE, target_id=record.id, status=Status.ACTIVE)
        assert store.commit("default", [promote], actor="test").applied
    await arun(config, parts=parts)
    with open_store(config, read_only=True) as store:
        (record,) = store.view("default").records()
        assert record.payload.text().endswith("(and only that)")
        assert record.status is Status.PROVISIONAL, "active were the old words"


def test_c4_the_estimate_holds_the_gates_calls() -> None:
    plain = estimate(Config(), 10, 0.0, WorldCost(tokens=0, max_steps=12))
    gated = estimate(
        Config.model_validate({"gate": {"names": ["default"]}}), 10, 0.0, WorldCost(tokens=0, max_steps=12)
    )
    assert (plain.gate_calls, gated.gate_calls) == (0, 240)
    assert gated.calls == plain.calls + 240
    assert "(240 of them for gates)" in gated.sentence
    assert "for gates" not in plain.sentence


def test_c4_the_estimate_of_an_evaluation_holds_its_repetitions() -> None:
    def episodes(**sections: object) -> int:
        config = Config.model_validate({"run": {"mode": "frozen", **sections}, "controls": {"aa": not sections}})
        return estimate(config, 10, 0.0, WorldCost(tokens=0, max_steps=12)).episodes

    assert (episodes(), episodes(attempts=5)) == (20, 10 * (5 + 5 + 4))


def test_any_prefix_of_the_select_split_is_spread_over_families() -> None:
    tasks = [
        Task(id=f"{family}-{at}", instruction="", scenario=f"{family}-{at}", metadata={"family": family})
        for family, size in (("mail", 6), ("pay", 3), ("todo", 3))
        for at in range(size)
    ]
    for count in range(1, 13):
        chosen = [task.metadata["family"] for task in stratified(tasks, 7)[:count]]
        assert all(abs(chosen.count(family) - count * share) < 1 for family, share in (("mail", 0.5), ("pay", 0.25)))
    assert {t.id for t in stratified(tasks, 7)} == {t.id for t in tasks}
    config = Config.model_validate({"gate": {"held_out": {"slices": "family"}}})
    assert slices(config, tasks)["family=pay"] == ("pay-0", "pay-1", "pay-2")
    with pytest.raises(EvolveError, match="there are family"):
        slices(Config.model_validate({"gate": {"held_out": {"slices": "difficulty"}}}), tasks)


def test_copies_of_killed_processes_are_swept(tmp_path: Path) -> None:
    import os
    import subprocess

    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f"scratch-{dead.pid}-x", f"scratch-{os.getpid()}-y", "scratch-mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "evolve.db").write_text("")
    assert sweep(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"scratch-{os.getpid()}-y", "scratch-mine"])
