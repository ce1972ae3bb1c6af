"""Find failed episodes: by their reward, or by a judge that never sees it. Every verdict is counted, errors too.

A judge that gives no verdict is a missing one: never a tie and never a success, and nothing is written from it, since
nobody said what was wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from textwrap import indent
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from memory.records import Frozen, Trajectory
from playbooks import prompts
from playbooks.asking import ask
from playbooks.compact import failed_checks
from playbooks.notebook.quoting import middle_out, observed
from playbooks.render import neutral
from policies.protocols import Message, Policy, Profile, SamplingParams
from policies.schemas import most_chars
from policies.templates import render_turns

TRANSCRIPT_CHARS: dict[Profile, int] = {"full": 25_000, "compact": 2_000}
"""Longest transcript that a judge reads; of a longer one it reads the head and the tail."""


class Finding(Frozen):
    """What is known of one episode's success. A missing verdict has `failed` set."""

    trajectory_id: str
    task_id: str
    failed: bool
    missing: bool = False
    """Nobody said whether it failed: it was not graded, or the judge erred."""
    reason: str = ""
    raw: str = ""
    """What an erring judge said."""


class Audit(Frozen):
    """How the failures of a whole cohort were found: each of its trajectories stands in one of the three lists."""

    judge: str
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    """Without a verdict."""


class Judgement(BaseModel):
    """What a judge answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    reason: Annotated[str, most_chars(160)] = ""
    verdict: Literal["correct", "incorrect"]

    @field_validator("reason", mode="before")
    @classmethod
    def _absent(cls, value: object) -> object:
        return "" if value is None else value


def by_outcome(trajectory: Trajectory) -> Finding:
    """Return what the reward says."""
    outcome = trajectory.outcome
    checks = () if outcome is None else failed_checks(outcome)
    return Finding(
        trajectory_id=trajectory.id,
        task_id=trajectory.task.id,
        failed=not trajectory.success,
        missing=outcome is None,
        reason="; ".join(f"{check.name}: {check.detail}" for check in checks) or trajectory.error or "",
    )


def judge_messages(trajectory: Trajectory, profile: Profile) -> list[Message]:
    """Return the judge's prompt. Pure; the outcome is never read."""
    name = "note_judge_compact" if profile == "compact" else "note_judge"
    did, seen = (">> ", "<< ") if profile == "compact" else ("action: ", "answer: ")
    lines = [line for step in trajectory.steps for line in (did + step.action, seen + observed(step))]
    shown = middle_out(neutral("\n".join(lines)), TRANSCRIPT_CHARS[profile])
    task = neutral(trajectory.instruction)
    if profile == "full":
        task, shown = indent(task, "  "), indent(shown, "  ")
    return render_turns(prompts, name, task=task, transcript=shown)


async def by_policy(policy: Policy, trajectory: Trajectory) -> Finding:
    """Return what `policy` thinks, after one re-ask if need be; an answer without a verdict is a missing one."""
    params = SamplingParams(max_tokens=64 if policy.profile == "compact" else 512)
    answer = await ask(policy, judge_messages(trajectory, policy.profile), Judgement, params)
    value = answer.value
    return Finding(
        trajectory_id=trajectory.id,
        task_id=trajectory.task.id,
        failed=value is None or value.verdict == "incorrect",
        missing=value is None,
        reason=value.reason if value else "",
        raw="" if value else answer.raw,
    )


async def find_failures(trajectories: Sequence[Trajectory], judge: Policy | None) -> tuple[Finding, ...]:
    """Return one finding for each trajectory, in order: by `judge`, or by their outcomes without one."""
    if judge is None:
        return tuple(map(by_outcome, trajectories))
    return tuple(await asyncio.gather(*(by_policy(judge, trajectory) for trajectory in trajectories)))


def audit(findings: Sequence[Finding], judge: str) -> Audit:
    """Return where each member of a cohort stands."""
    return Audit(
        judge=judge,
        passed=tuple(finding.trajectory_id for finding in findings if not finding.failed),
        failed=tuple(finding.trajectory_id for finding in findings if finding.failed and not finding.missing),
        missing=tuple(finding.trajectory_id for finding in findings if finding.missing),
    )
