"""Evaluation: frozen, exact, honest about what is missing, resumable; and the modes built on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evolve.episode.metrics import interval, summarize
from evolve.loop.assembly import open_store
from evolve.loop.evaluate import ZERO_INJECTIONS
from evolve.loop.session import Parts, RunResult, aresume, arun
from memory.errors import NotFound
from memory.records import DeltaOp, Op, Outcome, Provenance, Task, Trajectory
from policies.errors import PolicyUnavailable
from policies.scripted import ScriptedPolicy
from tests.evolve.listener import Listener
from tests.evolve.toy_doors import COLORS, Doors, doors_config, doors_policy, password, replies


def teach(root: Path, task_id: str = "") -> None:
    """Put what opens every door into the workspace."""
    with open_store(doors_config(root)) as store:
        ops = [
            DeltaOp(
                op=Op.ADD,
                payload={"content": f"the {color} door wants the word {password(color)}"},
                provenance=Provenance(task_ids=(task_id,) if task_id else ()),
            )
            for color in COLORS
        ]
        assert len(store.commit("default", ops, actor="test").applied) == len(COLORS)


async def examine(root: Path, *, policy: ScriptedPolicy | None = None, **sections: Any) -> RunResult:
    sections = {"run": {"mode": "frozen", **sections.pop("run", {})}, **sections}
    parts = Parts(policy=policy or doors_policy(), environment=Doors())
    return await arun(doors_config(root, **sections), parts=parts, observers=sections.pop("observers", ()))


async def test_frozen_knowledge_is_used_and_nothing_is_learned(tmp_path: Path) -> None:
    teach(tmp_path)
    result = await examine(tmp_path, controls={"no_memory": 1.0})
    main, control = result.evaluations
    assert (main.arm, main.metrics.tgc, main.metrics.sgc, main.metrics.injected) == ("main", 1.0, 1.0, 5.0)
    assert (control.arm, control.metrics.tgc, control.metrics.injected) == ("no_memory", 0.0, 0.0)
    assert main.snapshot_id
    assert all(main.passed[task] != passed for task, passed in control.passed.items())
    with open_store(doors_config(tmp_path), read_only=True) as store:
        assert {record.usage.injected for record in store.records("default")} == {0}
        assert [run.split for run in store.evals()] == ["test_normal", "test_normal"]
        assert all(t.snapshot_id == main.snapshot_id for t in store.trajectories(arm="main"))


async def test_what_was_learned_from_a_task_is_left_out_when_it_is_evaluated(tmp_path: Path) -> None:
    teach(tmp_path, task_id="test_normal-0")
    result = await examine(tmp_path, controls={"no_memory": 0})
    assert result.evaluations[0].passed == {f"test_normal-{at}": at != 0 for at in range(5)}


async def test_zero_injections_are_flagged(tmp_path: Path) -> None:
    notes = Listener()
    config = doors_config(tmp_path, run={"mode": "frozen"})
    parts = Parts(policy=doors_policy(), environment=Doors())
    result = await arun(config, parts=parts, observers=[notes])
    assert result.evaluations[0].warnings == (ZERO_INJECTIONS,)
    assert any(ZERO_INJECTIONS in text for text in notes.heard)


async def test_the_aa_arm_has_its_own_seed(tmp_path: Path) -> None:
    teach(tmp_path)

    def moody(messages: Any, params: Any) -> str:
        return replies(messages, params) if params.seed % 2 else "open nothing"

    policy = ScriptedPolicy(moody, name="doors", profile="compact", version="m")
    result = await examine(tmp_path, policy=policy, controls={"no_memory": 0, "aa": True})
    main, aa = result.evaluations
    assert aa.arm == "aa"
    assert main.snapshot_id == aa.snapshot_id
    with open_store(doors_config(tmp_path), read_only=True) as store:
        seeds = [{t.seed for t in store.trajectories(run_id=report.id)} for report in (main, aa)]
    assert not seeds[0] & seeds[1]


async def test_a_missing_episode_counts_as_failure(tmp_path: Path) -> None:
    teach(tmp_path)

    def crashing(messages: Any, params: Any) -> str:
        return "crash" if "red door." in messages[0].content else replies(messages, params)

    policy = ScriptedPolicy(crashing, name="doors", profile="compact", version="c")
    result = await examine(tmp_path, policy=policy, controls={"no_memory": 0})
    (report,) = result.evaluations
    assert report.passed["test_normal-0"] is None
    assert (report.metrics.coverage, report.metrics.tgc) == (0.8, 0.8)
    assert "1 of 5 episodes were not graded" in report.warnings[0]
    with open_store(doors_config(tmp_path), read_only=True) as store:
        (broken,) = [t for t in store.trajectories() if t.outcome is None]
    assert broken.error == "EnvironmentFailure: the door fell off"
    assert broken.stop == "error"


async def test_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    teach(tmp_path)
    calls = 0

    def dying(messages: Any, params: Any) -> Any:
        nonlocal calls
        calls += 1
        return PolicyUnavailable("gone") if calls > 3 else replies(messages, params)

    sections: dict[str, Any] = {"run": {"mode": "frozen", "concurrency": 1}, "controls": {"no_memory": 0}}
    config = doors_config(tmp_path, **sections)
    policy = ScriptedPolicy(dying, name="doors", profile="compact", version="v")
    with pytest.raises(PolicyUnavailable):
        await arun(config, parts=Parts(policy=policy, environment=Doors()))
    healed = ScriptedPolicy(replies, name="doors", profile="compact", version="v")
    heard = Listener()
    result = await aresume(config, parts=Parts(policy=healed, environment=Doors()), observers=[heard])
    assert result.evaluations[0].metrics.tgc == 1.0
    assert healed.calls == 2
    assert heard.done == [(4, 5), (5, 5)]


async def test_offline_validates_before_learning_and_after_each_epoch(tmp_path: Path) -> None:
    config = doors_config(tmp_path, run={"mode": "offline", "epochs": 2, "batch_size": 5}, controls={"no_memory": 0})
    result = await arun(config, parts=Parts(policy=doors_policy(), environment=Doors(5)))
    assert [report.metrics.tgc for report in result.evaluations] == [0.0, 1.0, 1.0]
    with open_store(config, read_only=True) as store:
        assert len(store.view("default").records()) == 5


async def test_offline_validates_on_the_split_that_is_named(tmp_path: Path) -> None:
    run = {"mode": "offline", "batch_size": 5, "dev_split": "test_normal"}
    config = doors_config(tmp_path, run=run, controls={"no_memory": 0})
    result = await arun(config, parts=Parts(policy=doors_policy(), environment=Doors(5)))
    assert {task for report in result.evaluations for task in report.passed} == {f"test_normal-{at}" for at in range(5)}


async def test_offline_goes_back_when_learning_does_harm(tmp_path: Path) -> None:
    teach(tmp_path)

    class Vandal:
        name = "vandal"

        async def curate(self, reflections: Any, view: Any) -> tuple[DeltaOp, ...]:
            return tuple(DeltaOp(op=Op.REMOVE, target_id=record.id) for record in view.records())

    class Chatty:
        name = "chatty"

        async def reflect(self, trajectory: Trajectory, injected: Any, *, label_free: bool = False) -> Any:
            from memory.records import Insight, Reflection

            said = (Insight(content="remove everything"),)
            return Reflection(trajectory_id=trajectory.id, task_id=trajectory.task.id, insights=said)

    notes = Listener()
    config = doors_config(tmp_path, run={"mode": "offline", "batch_size": 5}, controls={"no_memory": 0})
    parts = Parts(policy=doors_policy(), environment=Doors(5), curator=Vandal(), reflector=Chatty())
    result = await arun(config, parts=parts, observers=[notes])
    assert [report.metrics.tgc for report in result.evaluations] == [1.0, 0.0]
    with open_store(config, read_only=True) as store:
        assert len(store.view("default").records()) == 5
    assert any("epoch 0 was best" in text for text in notes.heard)


async def test_a_run_that_is_done_is_not_gone_on_with(tmp_path: Path) -> None:
    """Once more to the end, an offline run would go back to the knowledge of its best epoch."""
    run: dict[str, object] = {"mode": "offline", "tasks": 3, "batch_size": 3}
    config, later = doors_config(tmp_path, run=run), doors_config(tmp_path, run={"tasks": 7, "skip": 3})
    parts = Parts(policy=doors_policy(), environment=Doors(10))
    done = await arun(config, parts=parts)
    await arun(later, parts=parts)

    def stored() -> tuple[list[dict[str, Any]], Any]:
        with open_store(config, read_only=True) as store:
            return store.runs(), store.records("default")

    before = stored()
    with pytest.raises(NotFound, match=f"run '{done.run_id}' is done, .* `evolve report {done.run_id}`"):
        await aresume(config, done.run_id, parts=parts)
    assert stored() == before


def trajectory(task: Task, success: bool | None) -> Trajectory:
    outcome = None if success is None else Outcome(success=success, reward=float(success))
    return Trajectory(task=task, outcome=outcome)


def test_missing_counts_as_failure_in_every_rate() -> None:
    tasks = [Task(id=f"t{at}", instruction="", scenario=f"s{at // 2}") for at in range(4)]
    metrics = summarize(tasks, [trajectory(tasks[0], True), trajectory(tasks[1], True), trajectory(tasks[2], None)])
    assert (metrics.tgc, metrics.sgc, metrics.coverage) == (0.5, 0.5, 0.5)
    assert (metrics.tasks, metrics.graded, metrics.solved, metrics.scenarios) == (4, 2, 2, 2)


def test_no_episodes_are_no_success() -> None:
    metrics = summarize([Task(id="t", instruction="")], [])
    assert (metrics.tgc, metrics.coverage, metrics.steps_per_solved) == (0.0, 0.0, None)


def test_intervals_are_those_of_the_textbook() -> None:
    wilson, exact = interval(8, 10), interval(8, 10, "exact")
    assert (wilson.low, wilson.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert (exact.low, exact.high) == (pytest.approx(0.4439, abs=1e-4), pytest.approx(0.9748, abs=1e-4))
    assert interval(0, 0).high == 1.0
