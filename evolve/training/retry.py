"""One retry: an episode done anew from one of its steps, and the two as rows that are one up to there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.episode.prompting import guiding
from evolve.seeds import id_for
from evolve.training.pivot import Pivot
from evolve.training.replay import Anew, Calls, Dropped, anew, guided
from evolve.training.rollouts import ChainSpec
from evolve.training.turns import Replies, said, turns_of
from memory.records import Trajectory
from policies.protocols import Reply
from policies.rl.protocols import Retry
from policies.rl.rows import TrainRow, Turn, rows_of

DROPPED = ("no_pivot", "refused", "forked", "diverged", "not_graded", "no_token_ids", "not_cut")
"""Why a failed base has no retry: nothing says where it went wrong, a prompt was refused, a conversation broke into
several rows, the world answered the same steps otherwise, the retry was not graded, its tokens are not known, or
without its guidance it does not read what its base read."""


@dataclass(frozen=True)
class Again:
    """A retry, and the episode that it was made of."""

    retry: Retry
    trajectory: Trajectory


async def rolled_out(
    base: Trajectory, turns: Sequence[Turn], pivot: Pivot, setting: ChainSpec, calls: Calls
) -> Trajectory:
    """Return the episode done anew with guidance, from the last of the base's `turns`. Raises `Dropped`."""
    guidance = guiding(pivot.lessons, calls.policy.profile)
    return await anew(base, turns, setting, calls, Anew(id_for("rt", base.id), "retry", guidance))


def retry(row: TrainRow, turns: Sequence[Turn], pivot: Pivot, again: Trajectory, replies: Replies) -> Retry:
    """Return what the transform is given: the base's row, and the retry's with all that was said again in it."""
    step = turns[-1].step
    fresh = [turn for turn in turns_of(again, replies) or () if turn.step >= step]
    if not fresh:
        raise Dropped("no_token_ids")
    found = guided(turns, fresh[0])
    if found is None:
        raise Dropped("not_cut")
    replayed, guidance = found
    rewards = row.rewards | {"outcome": float(again.success)}
    made = rows_of((*replayed, *fresh), row.model_copy(update={"trajectory_id": again.id, "rewards": rewards}))
    if len(made) != 1:
        raise Dropped("forked")
    return Retry(row, made[0], step, guidance, _reflection(made[0], pivot.reflection))


def _reflection(row: TrainRow, reply: Reply | None) -> TrainRow | None:
    """Return a reflection as a row; None where no model wrote it, or its tokens are not known."""
    turn = said(reply) if reply is not None else None
    if turn is None:
        return None
    (made,) = rows_of([turn], row.model_copy(update={"trajectory_id": f"{row.trajectory_id}/reflection"}))
    return made
