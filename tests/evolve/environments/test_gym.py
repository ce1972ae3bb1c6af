"""Environments with `reset` and `step`: Gymnasium's tuples, OpenEnv's results, TextArena's games, each as it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.environments.check import SPLITS, Subject, examine, play
from evolve.environments.gym import Gym
from evolve.episode.injection import sought
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.errors import ConfigError, EnvironmentFailure
from evolve.loop.assembly import make_environment, open_store
from evolve.loop.exemplar_proposals import LEFT_OUT
from evolve.loop.session import Parts, arun
from evolve.protocols import Action
from evolve.usercode import open_episode
from memory.errors import BadInput
from memory.records import Task, Trust
from playbooks.rules import RulesReflector
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy


class Valve:
    """A game of ours, as Gymnasium has it: turn the valve to the number that the gauge shows."""

    def __init__(self, points: float = 1.0) -> None:
        self.points, self.closed = points, False

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.gauge = Random(seed).randrange(100)
        return f"The gauge shows {self.gauge}.", {}

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if not text.startswith("turn valve to "):
            return "You can't do that here.", 0.0, False, False, {}
        return "It hisses.", self.points * (text.endswith(f" {self.gauge}")), True, False, {}

    def close(self) -> None:
        self.closed = True


@dataclass
class Result:
    """What a client of OpenEnv returns."""

    observation: Any
    reward: float | None = None
    done: bool = False


@dataclass
class Client:
    """An asynchronous client whose actions and observations are objects."""

    base_url: str
    said: list[dict[str, str]] = field(default_factory=list)

    async def reset(self, **options: Any) -> Result:
        await asyncio.sleep(0)
        return Result({"prompt": f"seed {options['seed']} at {self.base_url}"})

    async def step(self, action: dict[str, str]) -> Result:
        self.said.append(action)
        if action["message"] == "leave":
            raise ConnectionError("the server is gone")
        return Result({"prompt": "heard"}, reward=0.5, done=len(self.said) == 2)


class Tenths:
    """Ten steps, each worth a tenth."""

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        return "Go.", {}

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "Go on.", 0.1, False, False, {}


TASK = Task(id="seed-0", instruction="Complete the task.", metadata={"seed": 0})


class Half:
    """Gives no reward, then something that is none."""

    def reset(self, seed: int) -> tuple[dict[Any, Any], dict[str, Any]]:
        self.given: list[Any] = [None, "a lot"]
        return {(1, 2): "a corner"}, {}

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        return "on", self.given.pop(0), False, False, {}


class Odd:
    """Returns what nobody reads."""

    def reset(self, seed: int) -> tuple[str, float, bool]:
        return "", 0.0, False


@pytest.fixture(autouse=True)
def brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the classes above importable, as a user's module is."""
    module = ModuleType("brought")
    vars(module).update(Valve=Valve, Client=Client, Half=Half, Odd=Odd, Tenths=Tenths)
    monkeypatch.setitem(sys.modules, "brought", module)


def gym(**keys: Any) -> Gym:
    world = make_environment(Config(environment={"name": "gym", "make": "brought:Valve", "train": 3, "test": 2} | keys))
    assert isinstance(world, Gym)
    return world


def splits_of(world: Any) -> dict[str, tuple[Task, ...]]:
    return {split: tuple(world.tasks(split)) for split in SPLITS}


async def solved(world: Gym, task: Task) -> list[Action]:
    """Return the right action of a valve, as its first scene shows it."""
    scene = await world.start(task).opening()
    return [Action(text=f"turn valve to {scene.split()[-1].rstrip('.')}")]


async def test_seeds_are_tasks_and_the_packaged_checks_pass() -> None:
    found = await examine(gym, splits_of)
    assert [each for each in found if each.result == "failed"] == []
    seeds = {split: [task.metadata["seed"] for task in tasks] for split, tasks in splits_of(gym(dev=0)).items()}
    assert seeds == {"train": [0, 1, 2], "dev": [], "test_normal": [2_000_000, 2_000_001], "test_challenge": []}


async def test_a_reward_is_a_share_of_the_best_sum() -> None:
    world = gym(arguments={"points": 10.0}, best=10.0)
    task = world.tasks("train")[1]
    assert (await play(world, task, await solved(world, task))).success
    assert (await play(world, task, [Action(text="turn valve to 1000")])).reward == 0.0
    half = gym(arguments={"points": 5.0}, best=10.0)
    outcome = await play(half, task, await solved(half, task))
    assert (outcome.success, outcome.reward) == (False, 0.5)
    assert (await play(gym(arguments={"points": -5.0}), task, await solved(half, task))).reward == 0.0


@pytest.mark.parametrize(("steps", "success", "reward"), [(9, False, 0.9), (10, True, 1.0), (11, True, 1.0)])
async def test_ten_tenths_are_the_whole(steps: int, success: bool, reward: float) -> None:
    outcome = await play(gym(make="brought:Tenths"), TASK, [Action(text="go")] * steps)
    assert (outcome.success, outcome.reward) == (success, pytest.approx(reward))


def test_a_task_without_a_seed_is_refused_in_a_sentence() -> None:
    for metadata in ({}, {"seed": "seven"}):
        with pytest.raises(BadInput, match=r"gym has no task 'mine'; a task is a seed: give it"):
            open_episode(gym(), Task(id="mine", instruction="Turn it.", metadata=metadata), 0)


async def test_objects_go_in_and_come_out_of_an_asynchronous_client() -> None:
    keys = {"arguments": {"base_url": "ws://here"}, "action": "message", "observation": "prompt"}
    world = gym(make="brought:Client", **keys)
    episode = world.start(world.tasks("dev")[0])
    assert await episode.opening() == "seed 1000000 at ws://here"
    first, second = await episode.step(Action(text="hello")), await episode.step(Action(text="again"))
    assert (first.observation, first.done, second.done) == ("heard", False, True)
    assert (await episode.grade()).reward == 1.0
    await episode.close()


async def test_what_others_raise_ends_the_episode_and_not_the_run() -> None:
    world = gym(make="brought:Client", arguments={"base_url": ""}, action="message")
    attempt = Attempt(id="tr-1", task=world.tasks("train")[0], seed=0)
    trajectory = await rollout(world, ScriptedPolicy(["leave"]), attempt, RolloutConfig(world="W"))
    assert trajectory.outcome is None
    assert trajectory.error is not None
    assert trajectory.error.startswith("EnvironmentFailure: ConnectionError: the server is gone (")
    with pytest.raises(EnvironmentFailure, match="got 3 values; expected Gymnasium's: 2 of reset, 5 of step"):
        await gym(make="brought:Odd").start(TASK).opening()
    with pytest.raises(ConfigError, match=r"observation is 'text'; an observation has \['prompt'\]"):
        await gym(make="brought:Client", arguments={"base_url": ""}, observation="text").start(TASK).opening()
    with pytest.raises(ConfigError, match="brought:Nothing"):
        gym(make="brought:Nothing")


async def test_odd_answers_of_others_are_read_or_end_the_episode() -> None:
    episode = gym(make="brought:Half").start(TASK)
    assert await episode.opening() == "{(1, 2): 'a corner'}"
    assert (await episode.step(Action(text="on"))).observation == "on"
    with pytest.raises(EnvironmentFailure, match="got reward 'a lot' and end False; expected a number and a bool"):
        await episode.step(Action(text="on"))


async def test_reflector_rules_learns_from_a_command_that_was_mended() -> None:
    world = gym()
    task = world.tasks("train")[0]
    (right,) = await solved(world, task)
    said = [right.text.replace("turn valve", "turn the valve"), right.text]
    trajectory = await rollout(
        world, ScriptedPolicy(said), Attempt(id="tr-1", task=task, seed=0), RolloutConfig(world="W")
    )
    assert trajectory.success
    assert trajectory.opening.startswith("The gauge shows")
    reflection = await RulesReflector().reflect(trajectory, ())
    assert [insight.content for insight in reflection.insights] == ["Use `turn valve to ...`"]


@pytest.mark.skipif(find_spec("textarena") is None, reason="textarena is not installed (pip install textarena)")
async def test_a_game_of_textarena_is_played_to_its_end() -> None:
    world = gym(make="textarena:make", arguments={"env_id": "GuessTheNumber-v0-raw"})
    task = world.tasks("train")[0]
    episode = world.start(task)
    assert "between 1 and 20" in await episode.opening()
    low, high, said = 1, 20, ""
    while "Congratulations" not in said:
        guess = (low + high) // 2
        said = (await episode.step(Action(text=f"[{guess}]"))).observation
        low, high = (guess + 1, high) if "higher" in said else (low, guess - 1)
    assert (await episode.grade()).success
    await episode.close()
    assert not (await play(world, task, [Action(text="no"), Action(text="no")])).success


@pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed")
async def test_families_of_reasoning_gym_are_environments_through_the_example(root: Any) -> None:
    def world() -> Gym:
        return gym(make="examples.worlds.reasoning:Reasoning", arguments={"family": "leg_counting"})

    found = await examine(world, splits_of)
    assert [each for each in found if each.result == "failed"] == []
    from examples.worlds.reasoning import Reasoning

    asked = Reasoning("leg_counting")
    for task in Subject(world(), world(), splits_of(world()), splits_of, 2).tasks:
        question, _ = asked.reset(task.metadata["seed"])
        assert await world().start(task).opening() == question
        assert (await play(world(), task, [Action(text=asked.entry["answer"])])).success


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ({}, ""),
        ({"recall_by_reset": True}, "The gauge shows 49."),
        (
            {
                "recall_by_reset": True,
                "make": "brought:Client",
                "observation": "prompt",
                "arguments": {"base_url": "x"},
            },
            "seed 0 at x",
        ),
    ],
)
async def test_knowledge_is_recalled_by_what_reset_shows_where_that_is_wanted(keys: dict[str, Any], shown: str) -> None:
    world = gym(**keys)
    assert world.first_scene(TASK) == shown
    assert sought(TASK, world).text == f"{TASK.instruction}\n\n{shown}".strip()
    other = TASK.model_copy(update={"instruction": "In other words."})  # the scene is kept, and the words are not
    assert sought(other, world).text.startswith("In other words.")


def test_what_reset_raises_before_an_episode_is_a_failure_of_the_environment() -> None:
    with pytest.raises(EnvironmentFailure, match="got 3 values"):
        gym(make="brought:Odd", recall_by_reset=True).first_scene(TASK)


@pytest.mark.parametrize("trusted", [False, True])
async def test_an_exemplar_shows_the_opening_where_the_configuration_says_that_no_stranger_wrote_it(
    tmp_path: Path, trusted: bool
) -> None:
    def turned(messages: Sequence[Message], params: SamplingParams) -> str:
        return f"turn valve to {messages[-1].content.rpartition('shows ')[2].removesuffix('.')}"

    config = Config.model_validate(
        {
            "root": tmp_path,
            "environment": {"name": "gym", "make": "brought:Valve", "train": 2, "trusted": trusted},
            "exemplars": {"enabled": True},
            "playbook": {"reflector": "none", "curator": "direct"},
            "controls": {"no_memory": 0.0},
        }
    )
    await arun(config, parts=Parts(policy=ScriptedPolicy(turned, name="turner")))
    with open_store(config, read_only=True) as store:
        first, *_ = (record for record in store.records("default") if record.kind == "exemplar")
    assert first.payload.opening.startswith("The gauge shows" if trusted else LEFT_OUT)
    assert first.provenance.trust is (Trust.VERIFIED if trusted else Trust.TAINTED)
