"""The policy itself says where its episode went wrong, as in R3L: one JSON object, which is trained on too."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from evolve.episode import prompts
from evolve.training.pivot import Pivot
from memory.records import Trajectory
from playbooks.compact import failed_checks
from playbooks.methods.shown_episode import block, line, steps_of
from policies.protocols import Message, Policy, SamplingParams
from policies.structured import generate_structured
from policies.templates import render_turns

__all__ = ["policy"]


class Reflected(BaseModel):
    """What a model answers, under the names of the released code."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    trajectory_outcome: str = ""
    root_cause_analysis: str = ""
    improvement_suggestion: str = ""
    retry_from_step: int | None = None


async def policy(trajectory: Trajectory, acted: Policy, params: SamplingParams) -> Pivot | None:
    """Return what the policy found; None where it cannot be read, suggests nothing, or names a step that is not there.

    Assumption: the policy can write JSON and knows its mistakes when it sees the grade; the compact dialect has no such
    role. Source: R3L, arXiv 2601.03715, reflection; the names are those of the released code, the wording is our own.
    """
    answer, reply, _ = await generate_structured(acted, pivot_messages(trajectory), Reflected, params)
    if answer is None or answer.retry_from_step is None or not answer.improvement_suggestion.strip():
        return None
    if not 0 <= answer.retry_from_step < len(trajectory.steps):
        return None
    lessons = (answer.root_cause_analysis, answer.improvement_suggestion)
    return Pivot(step=answer.retry_from_step, lessons=tuple(filter(str.strip, lessons)), reflection=reply)


def pivot_messages(trajectory: Trajectory) -> list[Message]:
    """Return the prompt that asks where an episode went wrong. Pure."""
    return render_turns(
        prompts,
        "pivot",
        task=block(trajectory.instruction),
        steps=steps_of(trajectory),
        reasons=[line(f"{check.name}: {check.detail}") for check in failed_checks(trajectory.outcome)],
    )
