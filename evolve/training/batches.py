"""From rollouts to what a trainer takes: rows of token ids, and for the slots the arrays of the whole batch.

What cannot be trained on is counted, never dropped in silence: episodes that were not graded, turns whose token ids are
not known, turns cut off by the token limit, turns that the engine gave a log-probability that is no number (they are
not trained on), conversations that broke into several rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isnan
from statistics import fmean

import numpy as np

from evolve.seeds import seed_for
from evolve.training.rollouts import Rollout
from evolve.training.turns import Replies, TurnReader, steps_of, turns_of
from memory.records import Frozen, StopReason, Trajectory
from policies.rl.protocols import Array, Episodes, Flags
from policies.rl.rows import Span, TrainRow, rows_of
from policies.rl.tracker import BetaTracker

COUNTED: tuple[str, ...] = ("episodes", "not_graded", "no_token_ids", "forked_rows", "truncated_turns", "broken_turns")


class ScoredEpisode(Frozen):
    """One episode with what it was paid, in parts, and with which others it is compared."""

    trajectory: Trajectory
    rewards: dict[str, float]
    group: str = ""
    chain_id: str = ""
    position: int = 0
    rollout: int = 0
    baseline: float | None = None
    """Success that was expected of its task before this batch."""


@dataclass(frozen=True)
class Prepared:
    """A batch before its advantages are known."""

    rows: tuple[TrainRow, ...] = ()
    episodes: Episodes = field(default_factory=lambda: _arrays((), ()))
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Episodes taken and left out, by reason, and what happened to their turns."""
    scored: tuple[ScoredEpisode, ...] = ()
    """The episodes of the rows, in their order."""

    @property
    def figures(self) -> dict[str, float]:
        """The counts, as metrics are written."""
        return {name: float(count) for name, count in self.counts.items()}

    def advantages(self, per_step: Array, kept: Flags) -> tuple[list[TrainRow], list[Array]]:
        """Return the rows of the trajectories that are kept, and for each its turns' advantages.

        `per_step` [s] and `kept` [n] stand in the order of `episodes`, which is that of the rows.
        """
        place = {name: at for at, name in enumerate(dict.fromkeys(row.trajectory_id for row in self.rows))}
        ends = np.cumsum([0, *(len(row.spans) for row in self.rows)])
        own = (per_step[start:stop] for start, stop in pairwise(ends))
        both = [
            (row, advantages)
            for row, advantages in zip(self.rows, own, strict=True)
            if kept[place[row.trajectory_id]] and row.trained
        ]
        return [row for row, _ in both], [advantages for _, advantages in both]


def episodes_of(rollouts: Iterable[Rollout], expected: BetaTracker) -> list[ScoredEpisode]:
    """Return the episodes of some rollouts: compared are those of one position of one chain, under one knowledge."""
    return [
        ScoredEpisode(
            trajectory=link.trajectory,
            rewards=rewards,
            group=f"{rollout.group}/{position}",
            chain_id=rollout.group,
            position=position,
            rollout=rollout.member,
            baseline=expected.value(link.trajectory.task.id),
        )
        for rollout in rollouts
        for position, (link, rewards) in enumerate(zip(rollout.links, rollout.rewards, strict=True))
    ]


def prepared(episodes: Iterable[ScoredEpisode], replies: Replies, turns: TurnReader = turns_of) -> Prepared:
    """Return the batch of some episodes; `replies` is where their model calls were kept, `turns` how they are read."""
    rows: list[TrainRow] = []
    taken: list[ScoredEpisode] = []
    counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
    for episode in episodes:
        trajectory = episode.trajectory
        found = turns(trajectory, replies) if trajectory.outcome is not None else None
        if not found:
            counts["not_graded" if trajectory.outcome is None else "no_token_ids"] += 1
            continue
        made = rows_of(found, _row(episode))
        counts["episodes"] += 1
        counts["forked_rows"] += len(made) - 1
        counts["truncated_turns"] += sum(turn.truncated for turn in found)
        counts["broken_turns"] += sum(turn.broken for turn in found)
        taken.append(episode)
        rows += made
    return assembled(taken, rows, counts)


def assembled(episodes: Sequence[ScoredEpisode], rows: Sequence[TrainRow], counts: dict[str, int]) -> Prepared:
    """Return the batch of rows; `episodes` holds what is known of each trajectory among them, in their order."""
    return Prepared(tuple(rows), _arrays(episodes, rows), counts, tuple(episodes))


def _row(episode: ScoredEpisode) -> TrainRow:
    return TrainRow(
        trajectory_id=episode.trajectory.id,
        task_id=episode.trajectory.task.id,
        group=episode.group,
        chain_id=episode.chain_id,
        position=episode.position,
        rollout=episode.rollout,
        rewards=episode.rewards,
        prompt_ids=(),
        completion_ids=(),
        sampling_logprobs=(),
        spans=(),
    )


def _arrays(taken: Sequence[ScoredEpisode], rows: Sequence[TrainRow]) -> Episodes:
    groups = {name: at for at, name in enumerate(dict.fromkeys(episode.group for episode in taken))}
    written: dict[str, list[TrainRow]] = {}
    for row in rows:
        written.setdefault(row.trajectory_id, []).append(row)
    turns = [
        (at, span, row)
        for at, episode in enumerate(taken)
        for row in written[episode.trajectory.id]
        for span in row.spans
    ]
    steps = [(at, span.step) for at, span, _ in turns]
    rewards = [sum(episode.rewards.values()) for episode in taken]
    expected = [episode.baseline for episode in taken]
    last = {at: n for n, (at, _) in enumerate(steps)}
    return Episodes(
        rewards=np.array(rewards, dtype=np.float64),
        groups=np.array([groups[episode.group] for episode in taken], dtype=np.int64),
        tokens=np.array([sum(row.trained for row in written[e.trajectory.id]) for e in taken], dtype=np.int64),
        trajectory=np.array([at for at, _ in steps], dtype=np.int64),
        step_rewards=np.array([rewards[at] if last[at] == n else 0.0 for n, (at, _) in enumerate(steps)]),
        anchors=np.array([_anchor(taken[at].trajectory, step) for at, step in steps], dtype=np.int64),
        baselines=None if None in expected else np.array(expected, dtype=np.float64),
        truncated=np.array([_cut_off(e.trajectory, written[e.trajectory.id]) for e in taken], dtype=np.bool_),
        parts=_parts(taken),
        logprobs=np.array([_mean_logprob(written[episode.trajectory.id]) for episode in taken], dtype=np.float64),
        actions=np.array([_action(taken[at].trajectory, step) for at, step in steps], dtype=np.int64),
        entropies=np.array([-_mean(_known(row, span)) for _, span, row in turns], dtype=np.float64),
    )


def _parts(taken: Sequence[ScoredEpisode]) -> Array:
    """Return the parts of each reward, a column for each name in order of names; 0 where an episode has none of it."""
    names = sorted({name for episode in taken for name in episode.rewards})
    parts = [[episode.rewards.get(name, 0.0) for name in names] for episode in taken]
    return np.array(parts, dtype=np.float64).reshape(len(taken), len(names))


def _cut_off(trajectory: Trajectory, rows: Sequence[TrainRow]) -> bool:
    """Tell whether a limit ended an episode, or one of its replies."""
    return trajectory.stop is StopReason.MAX_STEPS or any(span.truncated for row in rows for span in row.spans)


def _mean_logprob(rows: Sequence[TrainRow]) -> float:
    """Return the mean log-probability of an episode's trained tokens; 0 where there is none."""
    return _mean([logp for row in rows for span in row.spans for logp in _known(row, span)])


def _known(row: TrainRow, span: Span) -> list[float]:
    """Return the log-probabilities of a turn's tokens, as far as they are known.

    Minus their mean estimates the turn's entropy, without the probabilities of what was not said, which are not kept.
    """
    return [logp for logp in row.sampling_logprobs[span.start : span.stop] if not isnan(logp)]


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _action(trajectory: Trajectory, step: int) -> int:
    """Return a number for what the turn begun at a step did, whatever else was said."""
    return seed_for(*(each.action for each in steps_of(trajectory, step)))


def _anchor(trajectory: Trajectory, step: int) -> int:
    """Return a number for what the agent had before it when it made a step: the task, or the observation before."""
    return seed_for(trajectory.task.id, trajectory.steps[step - 1].observation if step else "")
