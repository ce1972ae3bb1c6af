"""What gates run: how many episodes, at what price, and which of the stream's they need not do again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evolve.episode.arms import ATTEMPT
from evolve.episode.rollout import RolloutConfig
from evolve.gates.call_budget import CallBudget, OutOfCalls
from evolve.gates.evaluator import ARM, Evaluator, episodes_of
from evolve.loop.assembly import open_store
from evolve.protocols import Action, StepResult
from memory.records import DeltaOp, Injection, Op, Outcome, Task, Trajectory, Usage
from memory.store import Store
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import COLORS, DoorEpisode, Doors, doors_config, password, replies

RULE = "the red door wants the word " + password("red")
RED = DeltaOp(op=Op.ADD, op_id="red", payload={"content": RULE})
MOST = 2


class Counted(DoorEpisode):
    """A door of a world that counts."""

    world: World

    async def step(self, action: Action) -> StepResult:
        await asyncio.sleep(0)
        return await super().step(action)

    async def close(self) -> None:
        self.world.open -= 1


class World(Doors):
    """Doors that look the same whatever the seed; counts its episodes."""

    seedless = True

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.seeds: list[int] = []
        self.open = self.most = 0

    def start(self, task: Task, seed: int = 0) -> Counted:
        self.begun.append(task.id)
        self.seeds.append(seed)
        self.open += 1
        self.most = max(self.most, self.open)
        episode = Counted(task.instruction.split()[2])
        episode.world = self
        return episode


class Chance(World):
    """The same, where seeds matter."""

    seedless = False


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(doors_config(tmp_path)) as made:
        yield made


def evaluator(store: Store, root: Path, world: World, **fields: Any) -> Evaluator:
    config = doors_config(root, run={"concurrency": 20})
    policy = ScriptedPolicy(replies, name="doors", profile="compact", version="1")
    return Evaluator(config, store, world, policy, RolloutConfig(world="", max_steps=MOST), "run", **fields)


def tasks(world: World, count: int = 5) -> Sequence[Task]:
    return world.tasks("train")[:count]


async def test_a_task_that_is_shown_the_same_runs_once(store: Store, tmp_path: Path) -> None:
    world = World()
    runs = evaluator(store, tmp_path, world)
    some = tasks(world)
    base = await runs(None, some, 1)
    assert dict(base) == dict.fromkeys((task.id for task in some), False)
    assert base.reach["train-0"] == pytest.approx(0.5 - 0.001)
    assert base.tokens.keys() == base.keys()
    assert not base.thrift
    assert dict(await runs(None, some, 2)) == dict(base)
    assert len(world.begun) == 5
    changed = await runs([RED], some, 3)
    assert changed["train-0"] is True
    assert not changed.thrift
    assert [task.id for task in runs.differ((), [RED], some)] == [each.id for each in some]
    trials = store.trajectories(run_id=episodes_of("run"))
    assert {trial.arm for trial in trials} == {ARM}
    assert store.records("default") == ()


async def test_what_another_run_saw_is_asked_again(store: Store, tmp_path: Path) -> None:
    """Between two runs a grader can have been mended."""
    world = World()
    for run in ("run", "later"):
        await replace(evaluator(store, tmp_path, world), run_id=run)(None, tasks(world), 1)
    assert len(world.begun) == 10


async def test_where_seeds_matter_each_look_runs_its_own(store: Store, tmp_path: Path) -> None:
    world = Chance()
    runs = evaluator(store, tmp_path, world)
    some = tasks(world, 2)
    for seed, begun in ((1, 2), (1, 2), (2, 4)):
        await runs(None, some, seed)
        assert len(world.begun) == begun
    assert len(set(world.seeds)) == 4
    assert not runs.seedless
    assert runs.differ((), (), some) == list(some)
    sure = evaluator(store, tmp_path, World())
    assert sure.seedless
    assert sure.differ((), (), some) == []
    assert not replace(sure, acting=replace(sure.acting, temperature=0.5)).seedless
    assert not replace(sure, environment=Doors()).seedless


async def test_eight_episodes_are_begun_at_once_whatever_may_run(store: Store, tmp_path: Path) -> None:
    world = Chance()
    await evaluator(store, tmp_path, world)(None, tasks(world, 20), 1)
    assert (len(world.begun), world.most, world.open) == (20, 8, 0)


@pytest.mark.parametrize(
    ("calls", "ops", "runs"), [(9, [RED], False), (10, [RED], True), (19, (), False), (20, (), True)]
)
async def test_an_arm_is_begun_only_where_it_fits_and_the_base_with_the_other(
    calls: int, ops: Sequence[DeltaOp], runs: bool, store: Store, tmp_path: Path
) -> None:
    """The stream took two calls a task: five tasks take ten, and the base leaves room for the candidate."""
    world = Chance()
    purse = CallBudget(1.0, advance=calls - 2)
    purse.fill(2, 1)
    made = evaluator(store, tmp_path, world, purse=purse)
    if runs:
        await made(ops, tasks(world), 1)
        assert len(world.begun) == purse.episodes == 5
        spent = purse.spent
        await made(ops, tasks(world), 1)
        assert purse.spent == spent, "what is known is paid for"
    else:
        with pytest.raises(OutOfCalls):
            await made(ops, tasks(world), 1)
        assert not world.begun


def episode(of: Task, **fields: Any) -> Trajectory:
    made = Trajectory(
        id="stream",
        task=of,
        run_id="run",
        policy="doors",
        policy_version="1",
        outcome=Outcome(success=True, reward=1.0),
        usage=Usage(calls=3),
    )
    return made.model_copy(update=fields)


GONE = Injection(record_id="nobody", version=1, label="rule-1", rank=1)


@pytest.mark.parametrize(
    ("world", "fields", "taken"),
    [
        (World(), {}, True),
        (Chance(), {}, False),
        (World(), {"arm": ATTEMPT}, False),
        (World(), {"policy": "other"}, False),
        (World(), {"policy_version": "2"}, False),
        (World(), {"run_id": "another"}, False),
        (World(), {"injected": (GONE,)}, False),
        (World(), {"task": Task(id="train-0", instruction="Open the blue door.")}, False),
    ],
)
async def test_an_episode_of_the_stream_that_was_shown_the_same_is_taken_as_it_is(
    world: World, fields: dict[str, Any], taken: bool, store: Store, tmp_path: Path
) -> None:
    world.begun.clear()
    (task,) = tasks(world, 1)
    store.add_trajectory(episode(task, **fields))
    purse = CallBudget(1.0)
    found = await evaluator(store, tmp_path, world, purse=purse)(None, [task], 1)
    assert found[task.id] is taken
    assert world.begun == ([] if taken else [task.id])
    assert purse.spent == (0 if taken else MOST)


async def test_a_change_of_code_alone_is_thrifty(store: Store, tmp_path: Path) -> None:
    world = World()
    made = evaluator(store, tmp_path, world)
    source = 'def f(x: int) -> int:\n    """Do it."""\n    return x\n'
    skill = DeltaOp(op=Op.ADD, op_id="f", kind="skill", payload={"source": source})
    for ops, thrift in (([skill], True), ([skill, RED], False), ([], False)):
        assert (await made(ops, tasks(world, 1), 1)).thrift is thrift
    assert len(COLORS) == 5


@pytest.mark.parametrize("enabled", [True, False])
async def test_without_a_playbook_nothing_known_is_shown(enabled: bool, store: Store, tmp_path: Path) -> None:
    world = World()
    store.commit("default", [RED], actor="test")
    made = evaluator(store, tmp_path, world)
    config = doors_config(tmp_path, playbook={"enabled": enabled})
    found = await replace(made, config=config)(None, tasks(world, 1), 1)
    assert found["train-0"] is enabled
    changed = await replace(made, config=config)([RED.model_copy(update={"op_id": "again"})], tasks(world, 1), 1)
    assert changed["train-0"] is enabled
