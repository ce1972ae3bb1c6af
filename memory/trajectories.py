"""Records of what happened: tasks, episodes and what a reflector made of them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from memory.base import Frozen, new_id, now


class Task(Frozen):
    """One job for the agent. `scenario` groups variants of one goal; splits never share a scenario."""

    id: str
    instruction: str
    environment: str = ""
    scenario: str = ""
    split: str = "train"
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Public facts about the task (family, difficulty). Never the answer."""

    def opened(self, opening: str) -> Task:
        """Return the task as the agent reads it: the instruction, then the world's opening observation."""
        return self.model_copy(update={"instruction": f"{self.instruction}\n\n{opening}"}) if opening else self


class ToolCall(Frozen):
    """A native tool call made by a policy."""

    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Usage(Frozen):
    """What a model call cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    calls: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Step(Frozen):
    """One action and what came back."""

    index: int
    action: str
    observation: str = ""
    error: str | None = None
    """The environment's error text, when the action failed."""
    reply: str = ""
    """The policy's whole reply, where it says more than `action` (thoughts, a fenced block)."""
    tool_calls: tuple[ToolCall, ...] = ()
    reply_key: str = ""
    """Where the journal keeps the reply that this step began, with its token ids; empty = nowhere."""
    omitted: int = 0
    """Characters of the observation that the agent did not read, since it was too long."""
    usage: Usage = Usage()
    seconds: float = 0.0
    """Time that the environment took."""
    reply_seconds: float = 0.0
    """Time until the reply that this step began was there; 0 where it began none, or nobody measured it."""


class Check(Frozen):
    """One graded condition of a task."""

    name: str
    passed: bool
    detail: str = ""


class Outcome(Frozen):
    """How an episode was graded. `reward` is in [0, 1]; `success` is the task goal."""

    success: bool
    reward: float = Field(allow_inf_nan=False)
    checks: tuple[Check, ...] = ()


class Injection(Frozen):
    """One record that was put into a prompt, and why it was chosen."""

    record_id: str
    version: int
    label: str
    rank: int
    scores: dict[str, float] = Field(default_factory=dict)
    core: bool = False
    searched: bool = False
    """The agent found it itself, after the episode had begun."""


class StopReason(StrEnum):
    """Why an episode ended."""

    DONE = "done"
    """The agent said it was finished, or the environment did."""
    MAX_STEPS = "max_steps"
    """The step limit was reached."""
    FORMAT = "format"
    """A reply held no code, in a training where that ends an episode (`train.require_code`)."""
    BUDGET = "budget"
    """A call, token, money or time budget ran out."""
    ERROR = "error"
    """The policy or the environment failed: `Trajectory.error` says how."""


class Trajectory(Frozen):
    """One episode from first prompt to grade. A failed one is data, not a crash."""

    id: str = Field(default_factory=new_id)
    task: Task
    opening: str = ""
    """What the world showed before the first action; empty where it shows nothing."""
    tools: tuple[str, ...] = ()
    """Names of the tools that this task offered natively; empty where every task is offered all of the world's."""
    steps: tuple[Step, ...] = ()
    outcome: Outcome | None = None
    """None = not graded (missing). Missing counts as failure in every rate."""
    stop: StopReason = StopReason.DONE
    error: str | None = None
    injected: tuple[Injection, ...] = ()
    forgotten: int = 0
    """Observations that were left out of later prompts, since the conversation was too long."""
    prelude: str = ""
    """Code that ran before the first step, without being one: the skills that the episode was given."""
    prelude_error: str | None = None
    """Why the skills it was to be given were left out."""
    snapshot_id: str | None = None
    run_id: str = ""
    arm: str = "main"
    """`main`, or the name of the control this episode belongs to (`no_memory`, `aa`, ...)."""
    policy: str = ""
    policy_version: str = ""
    seed: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    erased: bool = False
    """Only its figures are left: its task was forgotten, and nothing may be learned from it."""
    created_at: datetime = Field(default_factory=now)

    @property
    def instruction(self) -> str:
        """The task as the agent read it, with the opening observation."""
        return self.task.opened(self.opening).instruction

    def text(self) -> str:
        """Return all that can be read of the episode: the instruction, the actions and what was observed."""
        return "\n".join((self.instruction, *(f"{step.action}\n{step.observation}" for step in self.steps)))

    @property
    def success(self) -> bool:
        """True only for a graded success."""
        return self.outcome is not None and self.outcome.success


Tag = Literal["helpful", "harmful", "neutral"]
"""What a reflection says of a record that its episode was shown."""


class Insight(Frozen):
    """One lesson proposed by a reflector, not yet knowledge."""

    content: str
    section: str = ""
    cue: str = ""
    """When it applies, in machine-readable form where the reflector has one (e.g. the failing call)."""
    action: str = ""
    """What to do then, likewise (e.g. the call to make before)."""


class Reflection(Frozen):
    """What a reflector made of one trajectory. `parsed` is False when only `raw` could be kept."""

    id: str = Field(default_factory=new_id)
    trajectory_id: str
    task_id: str
    root_cause: str = ""
    insights: tuple[Insight, ...] = ()
    tags: dict[str, Tag] = Field(default_factory=dict)
    """Record id -> tag. Only records that were injected can be tagged."""
    raw: str = ""
    parsed: bool = True
    author: str = ""
    reply_key: str = ""
    """Names the reply it was read from, where replies are kept."""
    usage: Usage = Usage()
    created_at: datetime = Field(default_factory=now)
