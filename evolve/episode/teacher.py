"""A teacher inside an episode: it answers the plan, and grants one retry (ATLAS, arXiv 2511.01093).

It reads the task and what was done, never a grade. What it says stands in the trajectory where the agent read it, and
what it used is among the usage of that step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel

from evolve.config.model import Config
from evolve.episode import prompts
from evolve.episode.echo import borrowed, plain
from evolve.errors import ConfigError
from memory.records import Step, Task, Usage
from playbooks.asking import ask
from playbooks.methods.shown_episode import block
from playbooks.render import neutral
from policies.protocols import Policy, Profile, SamplingParams
from policies.roles import Policies
from policies.schemas import most_chars
from policies.templates import render, render_turns

PLAN = "# plan"
"""Action of the step that holds a plan: to those who run actions again, a comment."""
GO_ON = "Your teacher: go on."


class Advice(BaseModel):
    """What a teacher answers."""

    advice: Annotated[str, most_chars(800)] = ""


@dataclass(frozen=True)
class Teacher:
    """Who teaches, and when."""

    policy: Policy = field(repr=False)
    name: str
    """Name and version of its policy."""
    world: str
    plan: bool
    retry: bool

    async def review(self, task: Task, plan: str) -> tuple[str, Usage]:
        """Return what the agent is told of its plan, and what that used."""
        said, usage = await self._asked(task, plan, ())
        return said or GO_ON, usage

    async def advise(self, task: Task, steps: Sequence[Step]) -> tuple[str, Usage]:
        """Return what the agent is told of its last step, which failed; empty where the teacher has nothing to say."""
        return await self._asked(task, "", steps)

    async def _asked(self, task: Task, plan: str, steps: Sequence[Step]) -> tuple[str, Usage]:
        messages = render_turns(
            prompts,
            "teach",
            world=block(self.world),
            task=block(task.instruction),
            plan=block(plan),
            steps=[{"action": block(step.action), "answer": block(step.observation)} for step in steps],
        )
        answer = await ask(self.policy, messages, Advice, SamplingParams(max_tokens=512))
        advice = neutral(answer.value.advice).strip() if answer.value else ""
        told = (self.world, task.instruction, *(step.observation for step in steps if not step.error))
        advice = "" if borrowed(plain(advice), told) else advice
        return f"Your teacher: {advice}" if advice else "", answer.reply.usage


def make_teacher(config: Config, policies: Policies, world: str) -> Teacher | None:
    """Return the teacher of a run's episodes, None where it has nothing to do there.

    Raises `ConfigError` for an acting policy with compact prompts, which have no such turn.
    """
    asked, teacher = config.policy.teacher, policies.teacher
    if not (asked.plan_review or asked.retry):
        return None
    if policies.acting.profile == "compact":
        raise ConfigError(
            f"[policy.teacher] plan_review and retry need an acting policy with full prompts, and "
            f"{policies.acting.name!r} has compact ones: set both to false"
        )
    return Teacher(teacher, f"{teacher.name} {teacher.version}", world, asked.plan_review, asked.retry)


def invitation(config: Config, profile: Profile) -> str:
    """Return what the agent is told about its plan; empty where nobody reviews one."""
    return "\n\n" + render(prompts, "plan").strip() if config.policy.teacher.plan_review and profile == "full" else ""
