"""Contracts of the loop: an `Environment` makes tasks and single-use `Episode`s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from memory.records import Frozen, Outcome, Task, ToolCall, Trajectory
from policies.protocols import ToolSpec

ActionFormat = Literal["code", "text", "tools"]
"""How an environment is acted in: by code, by plain text, or by native tool calls."""


class Action(Frozen):
    """What the agent does in one step: code or text, or native tool calls."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


class StepResult(Frozen):
    """What the environment answered."""

    observation: str
    error: str | None = None
    """Set when the action failed; also part of `observation`, so that the agent sees it."""
    done: bool = False


class Episode(Protocol):
    """One attempt at one task. Single use: `step` until done, then `grade` once.

    Episodes of one environment run at the same time, on one event loop; see `Environment` for worlds that cannot.
    """

    async def step(self, action: Action) -> StepResult:
        """Perform one action. A mistake of the agent is an observation with `error`, never an exception."""
        ...

    async def grade(self) -> Outcome:
        """Grade what was done."""
        ...

    async def close(self) -> None:
        """Release sandbox sessions and files."""
        ...


class Environment(Protocol):
    """A world with tasks. The gold answer earns 1.0, doing nothing earns less, same seed = same tasks.

    Optional attributes:

    - `seedless = True`: an episode depends on the task and the actions alone, whatever its seed. Gates then need not
      run it again (`evolve.gates.evaluator`).
    - `live = True`: no task can be run again (a live stream). Gate `default` is then `static` and `online_ab`, and what
      would repeat a task is refused (`evolve.loop.live`).
    - `imports = ("math", "re")`: modules that code may import, and no others; the agent is told. A world that runs code
      in `skills.sandbox.monty` takes `importable()` from there.
    - `stop = ("\\n",)`: where a reply of the agent ends, in a world whose actions are one line.
    - `max_steps = 40`: actions that an episode may take, where `environment.max_steps` is not set.
    - `max_concurrency = 1`: most episodes that may be open at the same time, where the world has global state (a
      parser, a gateway to another runtime, a singleton), or a pool that runs out: `EPISODES` of `skills.sandbox.monty`
      for a world that runs code there. Further episodes wait for one to end.

    An environment raises `evolve.errors.EnvironmentFailure` for a failure of its own (a server that is gone): the
    episode ends ungraded and the run goes on. Any other exception is a bug and ends the run.
    """

    @property
    def name(self) -> str: ...

    @property
    def action_format(self) -> ActionFormat: ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """Tools offered natively when `action_format` is `tools`, else empty."""
        ...

    def describe(self, profile: str) -> str:
        """Return what the agent is told about this world before any task (API documentation), for a prompt profile."""
        ...

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of `train`, `dev`, `test_normal` or `test_challenge` (fewer splits are allowed)."""
        ...

    def start(self, task: Task, seed: int = 0) -> Episode:
        """Return a fresh episode."""
        ...


@runtime_checkable
class HasOpening(Protocol):
    """Capability of an `Episode`: it begins with an observation, as a game does with its first scene."""

    async def opening(self) -> str:
        """Return what the agent reads after the instruction, before its first action. Called once."""
        ...


@runtime_checkable
class HasTaskTools(Protocol):
    """Capability: tasks offer tools of their own, a part of `Environment.tools`."""

    def tools_for(self, task: Task) -> tuple[ToolSpec, ...]:
        """Return the tools that are offered natively in a task."""
        ...


@runtime_checkable
class HasFirstScene(Protocol):
    """Capability: what an episode shows first is known before it begins, and knowledge is recalled by it too.

    For worlds such as games, in which all tasks have one instruction and differ in their first scenes.
    """

    def first_scene(self, task: Task) -> str:
        """Return what `HasOpening.opening` of the task's episodes will show; empty = nothing.

        Called before each episode, while others are open: keep what is costly to make, and wait for none to end.
        """
        ...


class Demonstration(Frozen):
    """A worked example of how an action is written."""

    instruction: str
    reply: str
    """As the agent should write it, with the fence where actions are code."""


@runtime_checkable
class HasDemonstration(Protocol):
    """Capability: the environment has a worked example, of no task of its own, for agents of the full profile.

    It is shown as earlier turns of the conversation until there are exemplars to show: a small model follows what was
    done before it better than what it is told.
    """

    def demonstration(self) -> Demonstration:
        """Return the example. It must give no task away."""
        ...


@runtime_checkable
class HasAnswers(Protocol):
    """Capability: an episode comes to an answer, and two answers can be told to be the same without a grade."""

    def answer(self, episode: Trajectory) -> str | None:
        """Return what the agent answered, equal texts for equal answers; None where it gave none."""
        ...


@runtime_checkable
class TellsOutside(Protocol):
    """Capability: the environment tells what strangers can have written, such as mails, files and pages.

    A lesson whose author was shown such text waits until a gate measured it (`evolve.episode.taint`). Without this
    capability every opening and observation counts, error messages left out.
    """

    def outside(self, episode: Trajectory) -> Sequence[str]:
        """Return the texts of an episode that others than the operator and the environment can have written."""
        ...


@runtime_checkable
class HasGold(Protocol):
    """Capability: the environment can solve its own tasks."""

    def gold(self, task: Task) -> Sequence[Action]:
        """Return actions that earn reward 1.0."""
        ...


@runtime_checkable
class StateDiff(Protocol):
    """Capability `state_diff`: grading compares states, so a dropped or an extra write fails the task."""

    def state_changing(self, task: Task) -> Sequence[int]:
        """Return the indexes of the gold actions that change state."""
        ...

    def extra_write(self, task: Task) -> Action:
        """Return one additional state-changing action that no task asks for."""
        ...


@runtime_checkable
class HasCanaries(Protocol):
    """Capability: tasks whose success must not rise when a rule is broken, and that need no lesson to be solved."""

    def canaries(self) -> Sequence[Task]:
        """Return the tasks. They belong to no other split."""
        ...

    def breaches(self, task: Task) -> Sequence[Sequence[Action]]:
        """Return ways to break a rule during the task (handed in undone, damage beside it, mail to a stranger)."""
        ...


def stop_of(environment: Environment) -> tuple[str, ...]:
    """Return at what a reply ends, where the environment says so."""
    return tuple(getattr(environment, "stop", ()))


DEFAULT_MAX_STEPS = 12
"""Actions an episode may take where neither the configuration nor the environment says so."""


def max_steps_of(environment: Environment, configured: int | None) -> int:
    """Return how many actions an episode may take: as configured, else as the environment says, else the default."""
    return configured or int(getattr(environment, "max_steps", DEFAULT_MAX_STEPS))
