"""The model calls of an episode as an engine saw them: token ids and log-probabilities, from where replies are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evolve.episode.arms import GOLD
from memory.records import Step, Trajectory
from policies.protocols import Reply
from policies.rl.rows import Turn

Replies = Callable[[str], dict[str, Any] | None]
"""What was kept under a key (`ReplyStore.get_reply`)."""
TurnReader = Callable[[Trajectory, Replies], tuple[Turn, ...] | None]
"""Returns the turns of an episode, None where they cannot be known."""


def begins_turn(trajectory: Trajectory, step: Step) -> bool:
    """Tell whether a step began with a model call, or with what the world says in its place (arm `GOLD`)."""
    return trajectory.arm == GOLD or bool(step.usage.calls or step.reply_key)


def turns_of(trajectory: Trajectory, replies: Replies) -> tuple[Turn, ...] | None:
    """Return the turns of an episode in order; None where one is not known token by token.

    That is so where the policy offers no ids, the replies were not kept, or a secret was removed from one.
    """
    turns: list[Turn] = []
    for step in (step for step in trajectory.steps if begins_turn(trajectory, step)):
        turn = turn_of(step.reply_key, replies, step.index)
        if turn is None:
            return None
        turns.append(turn)
    return tuple(turns)


def turn_of(key: str, replies: Replies, step: int = 0) -> Turn | None:
    """Return one model call by the key of its reply; None where it is not known token by token."""
    kept = replies(key) if key else None
    return said(Reply.model_validate(kept["reply"]), step) if kept else None


def said(reply: Reply, step: int = 0) -> Turn | None:
    """Return a reply as a turn; None where it is not known token by token."""
    if reply.prompt_token_ids is None or reply.token_ids is None or reply.logprobs is None:
        return None
    return Turn(
        step=step,
        prompt_ids=reply.prompt_token_ids,
        token_ids=reply.token_ids,
        logprobs=reply.logprobs,
        policy_version=reply.policy_version,
        truncated=reply.finish_reason == "length",
    )


def steps_of(trajectory: Trajectory, step: int) -> tuple[Step, ...]:
    """Return the steps that the turn began at `step` asked for."""
    own = trajectory.steps[step : step + 1]
    later = trajectory.steps[step + 1 :]
    for each in later:
        if begins_turn(trajectory, each):
            break
        own = (*own, each)
    return own


def erred(trajectory: Trajectory, step: int) -> bool:
    """Tell whether a step that the turn began at `step` asked for ended in an error."""
    return any(each.error is not None for each in steps_of(trajectory, step))
