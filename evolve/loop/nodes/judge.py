"""Fan-in: where nobody grades and the operator asked for it, the policy judges its own episodes, to credit rules.

What several attempts agree on is known after them: `evolve.loop.nodes.attempt` asks for that judgement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from evolve.config.model import Config
from evolve.episode import prompts
from evolve.episode.agreement import agreed, answers
from evolve.episode.journalled_replies import about
from evolve.loop.state import RunContext, State, batch_of
from evolve.parallel import all_of
from memory.records import Event, Trajectory
from memory.store import Store
from playbooks.asking import ask
from policies.protocols import SamplingParams
from policies.templates import render_turns


class SelfJudgement(BaseModel):
    """What the policy thinks of an episode."""

    reason: str = ""
    success: bool


async def judge(state: State, context: RunContext) -> dict[str, Any]:
    """Journal one judgement per main-arm episode that has none; with graded outcomes there is nothing to do."""
    run = context.config.run
    if run.label_free and run.judge == "policy":
        await all_of(judge_episode(trajectory, context) for trajectory in context.batch(batch_of(state)).episodes)
    return {}


def judged_success(trajectory: Trajectory, context: RunContext) -> bool | None:
    """Return whether the episode counts as a success when rules are credited; None = nobody can say."""
    return judged(trajectory, context.config, context.store)


def judged(trajectory: Trajectory, config: Config, store: Store) -> bool | None:
    """Return whether the episode succeeded: by its grade, or where nobody grades by what was journalled of it."""
    if not config.run.label_free:
        return trajectory.outcome.success if trajectory.outcome else None
    found = store.events(type="judgement", subject=trajectory.id, limit=1)
    return found[0].data["success"] if found else None


async def judge_episode(trajectory: Trajectory, context: RunContext) -> None:
    """Journal the policy's judgement of an episode, once."""
    if not trajectory.steps or _is_judged(trajectory, context):
        return
    messages = render_turns(prompts, "judge", task=trajectory.instruction, steps=trajectory.steps)
    async with context.slots:
        with about(trajectory.task.id):
            policy, params = context.policies.judge, SamplingParams(max_tokens=256)
            answer = await ask(policy, messages, SelfJudgement, params)
    value = answer.value
    _journal(trajectory, value.success if value else None, value.reason if value else answer.raw, context)


def judge_by_agreement(attempts: Sequence[Trajectory], context: RunContext) -> None:
    """Journal of each attempt at a task, once, whether it gave the answer they agree on; None where they do not."""
    given = answers(context.environment, attempts)
    common = agreed(given)
    reason = f"{given.count(common) if common else 'none'} of {len(given)} attempts agree"
    for each, answer in zip(attempts, given, strict=True):
        if not _is_judged(each, context):
            _journal(each, None if common is None else answer == common, reason, context)


def _is_judged(trajectory: Trajectory, context: RunContext) -> bool:
    return bool(context.store.events(type="judgement", subject=trajectory.id, limit=1))


def _journal(trajectory: Trajectory, success: bool | None, reason: str, context: RunContext) -> None:
    data = {"success": success, "reason": reason}
    context.store.append(Event(type="judgement", run_id=context.stream.run_id, subject=trajectory.id, data=data))
