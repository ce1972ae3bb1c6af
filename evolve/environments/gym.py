"""Text environments with `reset` and `step`: one adapter for what others wrote.

- Gymnasium and what follows it (GEM, a class of your own): `reset(seed=)` returns (observation, info), `step(text)`
  returns (observation, reward, terminated, truncated, info).
- OpenEnv clients, awaited where they are asynchronous: both return an object with `observation`, `reward`, `done`.
- TextArena's games for one player: `get_observation()` says what there is to read, `close()` what was earned.

A task is a seed. What the environment raises ends the episode ungraded (`EnvironmentFailure`), with its file and line.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, Field

from evolve.config.tables import Section
from evolve.errors import ConfigError, EnvironmentFailure
from evolve.protocols import Action, ActionFormat, StepResult
from evolve.registry import load_object
from memory.errors import BadInput
from memory.records import Outcome, Task, Trajectory
from policies.protocols import ToolSpec

FIRST_SEEDS = {"train": 0, "dev": 1_000_000, "test_normal": 2_000_000}
"""Split -> the seed of its first task."""


class GymConfig(Section):
    """Which environment, and how its rewards are read."""

    make: str
    """`module:attribute` that returns a fresh environment: `gymnasium:make`, `gem:make`, `textarena:make`, the class of
    an OpenEnv client, or a class or function of your own."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What it is called with, by name."""
    description: str = ""
    """What the agent is told about this world."""
    instruction: str = "Complete the task."
    """What every task says, before what `reset` shows."""
    train: int = Field(default=100, ge=1)
    """Tasks of the split `train`."""
    dev: int = Field(default=30, ge=0)
    """Tasks for gates."""
    test: int = Field(default=50, ge=0)
    """Held-out tasks (`test_normal`)."""
    best: float = Field(default=1.0, gt=0)
    """Sum of rewards that solves a task. The sum is divided by it and kept between 0 and 1."""
    action: str = ""
    """Field that holds the text of an action, for environments whose actions are objects. Empty = the text itself."""
    observation: str = ""
    """Field that holds the text of an observation that is an object. Empty = all of it, as JSON."""
    trusted: bool = False
    """No stranger can have written what it shows, such as a game or a question that is drawn from the seed. Unless that
    is said exemplars leave out what it showed, and lessons wait for a gate that runs tasks."""
    max_concurrency: int = Field(default=1, ge=1)
    """Most episodes open at once: 1 unless the environment keeps everything, random numbers too, to itself."""
    recall_by_reset: bool = False
    """Knowledge is recalled by what `reset` shows too, not by the instruction alone. Once for each task another
    environment is made and reset for it, whatever is open: not for those that share something or come from a pool."""


class Gym:
    """Seeds as tasks, text as actions."""

    name = "gym"
    action_format: ActionFormat = "text"
    tools: tuple[ToolSpec, ...] = ()

    def __init__(self, config: GymConfig) -> None:
        """Raises `ConfigError` unless what makes the environment exists."""
        self._config = config
        self._make: Callable[..., Any] = load_object(config.make)
        self.max_concurrency = config.max_concurrency
        self._scenes: dict[str, str] = {}

    def describe(self, profile: str) -> str:
        """Return the configured description."""
        return self._config.description

    def tasks(self, split: str) -> Sequence[Task]:
        """Return one task for each seed of a split."""
        counts = {"train": self._config.train, "dev": self._config.dev, "test_normal": self._config.test}
        first, said = FIRST_SEEDS.get(split, 0), self._config.instruction
        return [
            Task(id=f"seed-{seed}", instruction=said, environment=self.name, split=split, metadata={"seed": seed})
            for seed in range(first, first + counts.get(split, 0))
        ]

    def first_scene(self, task: Task) -> str:
        """Return what `reset` shows, where that is asked for. Raises `EnvironmentFailure`, and `ConfigError` for a
        field that observations lack."""
        if not self._config.recall_by_reset:
            return ""
        if task.id not in self._scenes:
            with ThreadPoolExecutor(1) as apart:  # an environment may want an event loop, and here one is running
                self._scenes[task.id] = apart.submit(asyncio.run, _first_shown(self.start(task))).result()
        return self._scenes[task.id]

    def start(self, task: Task, seed: int = 0) -> GymEpisode:
        """Return a fresh episode; the task's own seed decides everything."""
        drawn: Any = task.metadata.get("seed")
        if not isinstance(drawn, int):
            raise BadInput(f'gym has no task {task.id!r}; a task is a seed: give it "metadata": {{"seed": 7}}')
        return GymEpisode(self._config, self._make, drawn)


class TrustedGym(Gym):
    """One in which no stranger writes."""

    def outside(self, episode: Trajectory) -> Sequence[str]:
        """Return nothing."""
        return ()


def make(config: GymConfig) -> Gym:
    """Return the environment. Raises as `Gym`."""
    return TrustedGym(config) if config.trusted else Gym(config)


class GymEpisode:
    """Single use: the environment is made and reset when it is first needed."""

    def __init__(self, config: GymConfig, make: Callable[..., Any], seed: int) -> None:
        self._config, self._make, self._seed = config, make, seed
        self._env: Any = None
        self._first = ""
        self._earned = 0.0

    async def opening(self) -> str:
        """Return what `reset` shows."""
        await self._begin()
        return self._first

    async def step(self, action: Action) -> StepResult:
        """Hand the text to the environment."""
        await self._begin()
        field = self._config.action
        answer = _answer(await _called(self._env.step, {field: action.text} if field else action.text))
        self._earned += answer.reward
        return StepResult(observation=self._read(answer.observation), done=answer.done)

    async def grade(self) -> Outcome:
        """Return the sum of the rewards as a share of the best one."""
        share = self._earned / self._config.best
        reward = 1.0 if share > 1.0 - 1e-9 else max(0.0, share)  # ten times 0.1 is a little less than 1
        return Outcome(success=reward == 1.0, reward=reward)

    async def close(self) -> None:
        """Close the environment where it can be closed."""
        if hasattr(self._env, "close"):
            await _called(self._env.close)

    async def _begin(self) -> None:
        if self._env is None:
            made = await _called(self._make, **self._config.arguments)
            self._env = _TextArena(made) if hasattr(made, "get_observation") else made
            self._first = self._read(_answer(await _called(self._env.reset, seed=self._seed)).observation)

    def _read(self, observation: Any) -> str:
        """Return the text of an observation."""
        plain = observation.model_dump(mode="json") if isinstance(observation, BaseModel) else observation
        if field := self._config.observation:
            fields = cast(dict[str, Any], plain if isinstance(plain, dict) else getattr(plain, "__dict__", {}))
            if field not in fields:
                raise ConfigError(f"[environment] observation is {field!r}; an observation has {sorted(fields)}")
            plain = fields[field]
        try:
            return plain if isinstance(plain, str) else json.dumps(plain, default=str)
        except (TypeError, ValueError):  # keys that are no texts, or an object that holds itself
            return str(plain)


async def _first_shown(episode: GymEpisode) -> str:
    try:
        return await episode.opening()
    finally:
        await episode.close()


class _Answer(NamedTuple):
    """What `reset` or `step` returned."""

    observation: Any
    reward: float = 0.0
    done: bool = False


async def _called(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call what others wrote, and await it where it wants that. Raises `EnvironmentFailure` for whatever it raises."""
    try:
        given = function(*arguments, **options)
        return await given if inspect.isawaitable(given) else given
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise EnvironmentFailure(f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})") from error


def _answer(given: Any) -> _Answer:
    """Read (observation, info), (observation, reward, terminated, truncated, info), or an object that says so."""
    if isinstance(given, tuple):
        observation, *more = cast(tuple[Any, ...], given)
        if len(more) not in (1, 4):
            raise EnvironmentFailure(f"got {len(more) + 1} values; expected Gymnasium's: 2 of reset, 5 of step")
        reward, ended = (more[0], more[1] or more[2]) if len(more) == 4 else (0.0, False)
    elif hasattr(given, "observation"):
        observation, reward, ended = given.observation, getattr(given, "reward", 0.0), getattr(given, "done", False)
    else:
        raise EnvironmentFailure(f"got {type(given).__name__}; expected Gymnasium's tuples or OpenEnv's results")
    try:
        return _Answer(observation, float(reward or 0.0), bool(ended))
    except (TypeError, ValueError) as error:
        raise EnvironmentFailure(f"got reward {reward!r} and end {ended!r}; expected a number and a bool") from error


class _TextArena:
    """A game of TextArena for one player, as Gymnasium has it."""

    def __init__(self, game: Any) -> None:
        self._game = game

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        self._game.reset(num_players=1, seed=seed)
        return self._observed(), {}

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        done, info = self._game.step(text)
        observed = self._observed()
        if not done:
            return observed, 0.0, False, False, info
        rewards, told = self._game.close()
        return f"{observed}\n{told[0].get('reason') or ''}".strip(), (rewards or {}).get(0, 0.0), True, False, info

    def _observed(self) -> str:
        """Return what the game said since it was last asked, without what the player said."""
        player, said = self._game.get_observation()
        if isinstance(said, str):
            return said
        return "\n".join(text for speaker, text, *_ in said if speaker != player)


MEMBER = make
