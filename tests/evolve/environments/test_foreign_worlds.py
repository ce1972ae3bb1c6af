"""Worlds that others wrote: a first scene, tools per task, long answers, limits of their own, global state."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolve.environments.bfcl import Bfcl
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.loop.assembly import open_store
from evolve.loop.report import Report, lines, make_report
from evolve.loop.session import Parts, arun
from evolve.progress import Progress, RunStarted
from evolve.protocols import Action, Episode, StepResult
from memory.records import Outcome, Task
from policies.protocols import Message, Reply, ToolSpec
from policies.scripted import ScriptedPolicy
from tests.evolve.toy_doors import Doors, doors_config, doors_policy

TASK = Task(id="cave-0", instruction="Leave the cave.")
SCENE = "You stand in a cave. A rope hangs in the north."


@dataclass
class Cave:
    """A game that shows a scene first; `answer` is what every action is answered."""

    answer: str = "Nothing happens."
    name: str = "cave"
    action_format: str = "text"
    tools: tuple[ToolSpec, ...] = ()
    open_now: list[int] = field(default_factory=list)
    most_open: int = 0

    def describe(self, profile: str) -> str:
        return "A game."

    def tasks(self, split: str) -> Sequence[Task]:
        return [TASK]

    def start(self, task: Task, seed: int = 0) -> CaveEpisode:
        return CaveEpisode(self)


@dataclass
class CaveEpisode:
    cave: Cave

    async def opening(self) -> str:
        return SCENE

    async def step(self, action: Action) -> StepResult:
        self.cave.open_now.append(1)
        self.cave.most_open = max(self.cave.most_open, len(self.cave.open_now))
        await asyncio.sleep(0)
        self.cave.open_now.pop()
        return StepResult(observation=self.cave.answer, done=action.text == "climb")

    async def grade(self) -> Outcome:
        return Outcome(success=True, reward=1.0)

    async def close(self) -> None:
        pass


def attempt(task: Task = TASK, number: int = 0) -> Attempt:
    return Attempt(id=f"tr-{number}", task=task, seed=7)


def told(policy: ScriptedPolicy, call: int = -1) -> str:
    return "\n".join(message.content for message in policy.seen[call])


async def test_the_first_scene_is_read_before_the_first_action_and_kept() -> None:
    policy = ScriptedPolicy(["climb"])
    trajectory = await rollout(Cave(), policy, attempt(), RolloutConfig(world="W"))
    assert told(policy).count(SCENE) == 1
    assert trajectory.task == TASK  # the task is not changed by what was shown
    assert trajectory.opening == SCENE
    assert trajectory.instruction == f"{TASK.instruction}\n\n{SCENE}"


async def test_a_task_offers_its_own_tools_alone() -> None:
    world = Bfcl()
    task = world.tasks("train")[0]
    seen: list[tuple[ToolSpec, ...]] = []

    def answer(messages: Sequence[Message], params: Any) -> Reply | str:
        seen.append(params.tools)
        return "Done."

    await rollout(world, ScriptedPolicy(answer), attempt(task), RolloutConfig(world="W", max_steps=1))
    assert seen == [world.tools_for(task)]
    assert 0 < len(seen[0]) < len(world.tools)


async def test_a_long_observation_is_cut_in_the_middle_and_says_so() -> None:
    policy = ScriptedPolicy(["look", "climb"])
    cave = Cave(answer="a" * 100_000 + "z" * 100_000)
    trajectory = await rollout(cave, policy, attempt(), RolloutConfig(world="W", observation_chars=1_000))
    (step, _) = trajectory.steps
    assert len(step.observation) < 1_100
    assert step.observation.startswith("a" * 500)
    assert step.observation.endswith("z" * 500)
    assert "[... 199000 characters left out ...]" in step.observation
    assert step.omitted == 199_000
    assert step.observation in told(policy)


async def test_without_being_asked_no_observation_is_read_whole_whatever_its_length() -> None:
    policy = ScriptedPolicy(["look", "climb"])
    await rollout(Cave(answer="x" * 200_000), policy, attempt(), RolloutConfig(world="W"))
    assert len(told(policy)) < 30_000


async def test_a_long_conversation_loses_its_oldest_observations_first() -> None:
    policy = ScriptedPolicy([*["look"] * 9, "climb"])
    acting = RolloutConfig(world="W", max_steps=10, observation_chars=1_000, history_chars=3_500)
    trajectory = await rollout(Cave(answer="y" * 900), policy, attempt(), acting)
    assert all(len(told(policy, call)) <= 3_600 for call in range(10))
    last = [message.content for message in policy.seen[-1]]
    assert SCENE in last[1]
    assert "left out" in last[3]
    assert last[-1] == "y" * 900
    assert trajectory.forgotten > 0
    assert all(step.observation == "y" * 900 for step in trajectory.steps)  # the journal keeps what was read


async def test_a_world_says_how_many_of_its_episodes_may_be_open_at_once() -> None:
    class Narrow(Cave):
        max_concurrency = 1

    for cave, most in ((Cave(), 4), (Narrow(), 1)):
        policies = [ScriptedPolicy(["look", "look", "climb"]) for _ in range(4)]
        await asyncio.gather(
            *(rollout(cave, policy, attempt(number=at), RolloutConfig(world="W")) for at, policy in enumerate(policies))
        )
        assert cave.most_open == most


class LongDoors(Doors):
    """Doors that want more patience than the default, and a reward between 0 and 1."""

    max_steps = 30

    def start(self, task: Task, seed: int = 0) -> Any:
        return SlowDoor(super().start(task, seed))


class SlowDoor:
    """Opens after 20 steps."""

    def __init__(self, door: Any) -> None:
        self.door, self.steps = door, 0

    async def step(self, action: Action) -> StepResult:
        self.steps += 1
        return StepResult(observation="wait " * 5_000 if self.steps == 1 else "wait", done=self.steps == 20)

    async def grade(self) -> Outcome:
        return Outcome(success=self.steps >= 20, reward=0.25 + self.steps / 80)

    async def close(self) -> None:
        pass


async def run_doors(root: Path, **sections: dict[str, object]) -> Report:
    config = doors_config(root, run={"tasks": 4}, **sections)
    result = await arun(config, parts=Parts(policy=doors_policy(), environment=LongDoors()))
    with open_store(config, read_only=True) as store:
        return make_report(store, result.run_id)


async def test_a_world_says_how_many_steps_it_needs_and_the_configuration_has_the_last_word(tmp_path: Path) -> None:
    patient = await run_doors(tmp_path / "a")
    assert patient.whole is not None
    assert (patient.whole.steps, patient.whole.tgc) == (20, 1)
    hasty = await run_doors(tmp_path / "b", environment={"max_steps": 5})
    assert hasty.whole is not None
    assert (hasty.whole.steps, hasty.whole.tgc) == (5, 0)


async def test_a_report_says_the_mean_reward_why_episodes_ended_and_what_was_cut_short(tmp_path: Path) -> None:
    report = await run_doors(tmp_path, environment={"max_steps": 5, "observation_chars": 1_000})
    assert report.whole is not None
    assert report.whole.reward == 0.25 + 5 / 80
    assert report.whole.stops == {"max_steps": 4}
    text = "\n".join(lines(report))
    assert "reward 0.312" in text
    assert "ended by max_steps 4" in text
    assert "4 observations were longer than environment.observation_chars" in text


async def test_what_a_run_may_cost_counts_the_schemas_of_its_tools(tmp_path: Path) -> None:
    said: dict[str, tuple[int, int]] = {}
    for name, tools in (("bare", ()), ("tools", (ToolSpec(name="look", description="word " * 1_000, parameters={}),))):
        doors, heard = Doors(4), Heard()
        doors.tools = tools
        config = doors_config(tmp_path / name)
        await arun(config, parts=Parts(policy=doors_policy(), environment=doors), observers=[heard])
        calls, tokens = re.findall(r"at most (\d+) calls.* about (\d+) tokens", " ".join(heard.estimates))[0]
        said[name] = int(calls), int(tokens)
    assert said["tools"][0] == said["bare"][0]
    assert said["tools"][1] - said["bare"][1] >= 1_000 * said["bare"][0]


class Heard:
    """An observer that keeps what runs may cost."""

    def __init__(self) -> None:
        self.estimates: list[str] = []

    def notify(self, event: Progress) -> None:
        if isinstance(event, RunStarted):
            self.estimates.append(event.estimate)


def test_no_episode_has_to_pickle() -> None:
    assert "pickle" not in (inspect.getdoc(Episode) or "")
