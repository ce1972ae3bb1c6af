"""Contracts of the loop: an `Environment` makes tasks and single-use `Episode`s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from memory.records import Frozen, Outcome, Task, ToolCall
from policies.protocols import ToolSpec

ActionFormat = Literal["code", "text", "tools"]


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
    """One attempt at one task. Single use: `step` until done, then `grade` once. Its state pickles."""

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

    An optional attribute `seedless = True` says that an episode depends on the task and the actions alone, whatever its
    seed: gates then need not run it again (`evolve.gates.evaluator`). `live = True` says that no task can be run again
    (a live stream): gate `default` is then `static` and `online_ab`, and what would repeat a task is refused
    (`evolve.live`).
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
