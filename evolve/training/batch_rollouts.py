"""Rollouts of a batch, stored for later (`rollout_store`): each episode with its prompt, turns and advantages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from evolve.episode.prompting import shortened
from evolve.training.batches import ScoredEpisode
from evolve.training.rollout_store import TEXT, RolloutTurn, StoredRollout
from evolve.training.turns import steps_of
from memory.records import Step, Trajectory
from memory.redact import redact
from policies.protocols import Message
from policies.rl.protocols import Array
from policies.rl.rows import Span, TrainRow

Asked = Mapping[str, tuple[Message, ...]]
"""Key of a reply -> the messages that it answered."""
WithAdvantages = tuple[Sequence[TrainRow], Sequence[Array]]
"""The rows of an update, and for each its turns' advantages."""


def stored(
    iteration: int, episodes: Iterable[ScoredEpisode], rows: Iterable[TrainRow], trained: WithAdvantages, asked: Asked
) -> list[StoredRollout]:
    """Return the episodes of an iteration, those of a group together. `rows` are all of them, before any filter."""
    spans = {(row.trajectory_id, span.step): span for row in rows for span in row.spans}
    advantages = {
        (row.trajectory_id, span.step): float(advantage)
        for row, own in zip(*trained, strict=True)
        for span, advantage in zip(row.spans, own, strict=True)
    }
    every = list(episodes)
    order = {group: at for at, group in enumerate(dict.fromkeys(each.group for each in every))}
    return [
        _stored(iteration, each, spans, advantages, asked)
        for each in sorted(every, key=lambda each: (order[each.group], each.rollout))
    ]


def _stored(
    iteration: int,
    episode: ScoredEpisode,
    spans: Mapping[tuple[str, int], Span],
    advantages: Mapping[tuple[str, int], float],
    asked: Asked,
) -> StoredRollout:
    trajectory = episode.trajectory
    turns: list[RolloutTurn] = []
    for first in (step for step in trajectory.steps if step.usage.calls or step.reply_key):
        at = (trajectory.id, first.index)
        span = spans.get(at)
        turns.append(
            RolloutTurn(
                steps=tuple(_readable(step) for step in steps_of(trajectory, first.index)),
                tokens=first.usage.completion_tokens,
                version=span.policy_version if span else trajectory.policy_version,
                truncated=span is not None and span.truncated,
                advantage=advantages.get(at),
            )
        )
    return StoredRollout(
        id=trajectory.id,
        iteration=iteration,
        task=trajectory.task.id,
        group=episode.group,
        position=episode.position,
        rollout=episode.rollout,
        rewards=episode.rewards,
        success=trajectory.success,
        graded=trajectory.outcome is not None,
        stop=trajectory.stop,
        error=trajectory.error and _cut(trajectory.error),
        prompt=_prompt(trajectory, asked),
        turns=tuple(turns),
    )


def _prompt(trajectory: Trajectory, asked: Asked) -> tuple[Message, ...]:
    """Return what was said before the first reply.

    A retry repeats replies of its base, which was asked without guidance: so its last request says what it was told.
    """
    requests = [asked[step.reply_key] for step in trajectory.steps if step.reply_key in asked]
    opening = requests[-1][: len(requests[0])] if requests else ()
    return tuple(Message(role=each.role, content=_cut(each.content)) for each in opening)


def _readable(step: Step) -> Step:
    texts = {name: _cut(getattr(step, name)) for name in ("action", "observation", "reply")}
    kept = Step(index=step.index, action="", error=step.error and _cut(step.error), seconds=step.seconds)
    return kept.model_copy(update=texts)


def _cut(text: str) -> str:
    return shortened(redact(text), TEXT)[0]
