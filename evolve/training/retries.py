"""R3L's retries: what failed is done again from the step that went wrong, with guidance, and both are compared.

Half of a group's rollouts are bases, the other half is for retries, at most one of each base that failed. The way back
to a step is to do again what was done before it, in a fresh episode with the base's seed, and to compare every answer:
that needs nothing of an environment but that it is deterministic, and it shows where one is not. A dump of the sandbox
would be no less work here, and few worlds offer one.
Source: R3L, arXiv 2601.03715. Deviations: successes are not retried, and a retry that guidance cannot be cut out of
token by token is dropped; what is dropped is counted by its reason.

One retry: an episode done anew from one of its steps, and the two as rows that are one up to there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolve.config.training import TrainSection
from evolve.episode.prompting import guiding
from evolve.episode.rollout import RolloutConfig
from evolve.episode.skill_runtime.chains import Link
from evolve.errors import ConfigError
from evolve.parallel import all_of
from evolve.seeds import id_for, seed_for
from evolve.training.batches import Prepared, ScoredEpisode, assembled
from evolve.training.pivot import Pivot, PivotFinder
from evolve.training.pivots.policy import policy as by_policy
from evolve.training.pivots.rules import rules as by_rules
from evolve.training.rollouts import ChainSpec, rewarded
from evolve.training.state_replay import Anew, Calls, Dropped, anew, guided
from evolve.training.turns import Replies, said, turns_of
from memory.errors import BadInput
from memory.records import Trajectory
from policies.errors import PolicyRefused
from policies.protocols import Profile, Reply, SamplingParams
from policies.rl.protocols import Retry, TrajectoryTransform
from policies.rl.rows import TrainRow, Turn, rows_of

FINDERS: Mapping[str, PivotFinder] = {"policy": by_policy, "rules": by_rules}
REFLECTION_TOKENS = 1024
TRIED, BETTER, SAME, WORSE, SOLVED = "retries", "retries_better", "retries_same", "retries_worse", "retries_solved"
"""Failed bases, what the reward of their retries was beside theirs, and retries that earned 1."""


def retrying_of(section: TrainSection, profile: Profile) -> Retrying | None:
    """Return what rolls out retries, None where `[train]` wants none. Raises `ConfigError` where they do not fit it."""
    if not section.retries:
        return None
    asked = f"train.retries = {section.retries!r}"
    if section.skills or section.length != 1:
        raise ConfigError(
            f"got {asked} with skills = {section.skills}, length = {section.length}; retries are of single tasks: set "
            "train.skills = false and train.length = 1, as `evolve train r3l` does"
        )
    if section.rollouts % 2:
        raise ConfigError(
            f"got {asked} with rollouts = {section.rollouts}; half of them are retries: give an even number"
        )
    if section.retries == "policy" and profile == "compact":
        raise ConfigError(
            f'got {asked} with a policy of the compact profile, which has no such role; set it to "rules"'
        )
    return Retrying(FINDERS[section.retries], section.member("transform"))


@dataclass(frozen=True)
class Retrying:
    """Retries: who finds the step and the guidance, and what becomes of base and retry."""

    finder: PivotFinder
    transform: TrajectoryTransform

    async def added(
        self, batch: Prepared, episodes: Sequence[ScoredEpisode], settings: Sequence[ChainSpec], calls: Calls
    ) -> Prepared:
        """Return a batch with a retry of each episode that failed: what was not retried, then the transform's rows.

        `batch` is what `prepared` made of `episodes`. Raises what `rollout` raises, but for a request that is refused,
        and `BadInput` as the transform does.
        """
        worlds = {each.group: each for each in settings}
        rows: dict[str, list[TrainRow]] = {}
        for row in batch.rows:
            rows.setdefault(row.trajectory_id, []).append(row)
        failed = [each for each in episodes if each.trajectory.id in rows and sum(each.rewards.values()) < 1]
        found = await all_of(
            self._tried(each.trajectory, rows[each.trajectory.id], worlds[each.chain_id], calls) for each in failed
        )
        done = [each for each in found if isinstance(each, Again)]
        made = self.transform([each.retry for each in done])
        replaced = {each.retry.base.trajectory_id for each in done}
        whole = [*(row for row in batch.rows if row.trajectory_id not in replaced), *made]
        return assembled(_episodes(whole, episodes, done), whole, batch.counts | _counts(found))

    async def _tried(self, base: Trajectory, rows: Sequence[TrainRow], setting: ChainSpec, calls: Calls) -> Again | str:
        """Return the retry of an episode, or why there is none."""
        try:
            if len(rows) != 1:
                raise Dropped("forked")
            pivot = await self.finder(base, calls.policy, _reflecting(base, calls.acting))
            if pivot is None:
                raise Dropped("no_pivot")
            turns = turns_of(base, calls.replies) or ()
            before = tuple(turn for turn in turns if turn.step <= pivot.step)
            again = await rolled_out(base, before, pivot, setting, calls)
            return Again(retry(rows[0], before, pivot, again, calls.replies), again)
        except Dropped as dropped:
            return str(dropped)
        except PolicyRefused:
            return "refused"


def _reflecting(base: Trajectory, acting: RolloutConfig) -> SamplingParams:
    """Return how a reflection is sampled: as actions are, since it is trained on like them."""
    seed = seed_for(base.seed, "reflect")
    return SamplingParams(temperature=acting.temperature, max_tokens=REFLECTION_TOKENS, seed=seed)


def _episodes(
    rows: Sequence[TrainRow], episodes: Sequence[ScoredEpisode], done: Sequence[Again]
) -> list[ScoredEpisode]:
    """Return for each trajectory of the rows what the slots are told of it: its rewards and group are the rows' own."""
    known = {each.trajectory.id: each for each in episodes}
    for each in done:
        base = known[each.retry.base.trajectory_id]
        known[each.trajectory.id] = base.model_copy(update={"trajectory": each.trajectory})
    found: dict[str, ScoredEpisode] = {}
    for row in rows:
        source = known.get(row.trajectory_id.partition("/")[0])
        if source is None:
            raise BadInput(
                f"train.transform made a row of {row.trajectory_id!r}; expected the id of a base or of a retry, with "
                "what tells it from others after a `/`"
            )
        own = source.trajectory.model_copy(update={"id": row.trajectory_id})
        found[row.trajectory_id] = source.model_copy(
            update={"trajectory": own, "rewards": row.rewards, "group": row.group}
        )
    return list(found.values())


def _counts(found: Sequence[Again | str]) -> dict[str, int]:
    counts = dict.fromkeys((TRIED, BETTER, SAME, WORSE, SOLVED, *(f"{TRIED}_{why}" for why in DROPPED)), 0)
    counts[TRIED] = len(found)
    for each in found:
        if isinstance(each, str):
            counts[f"{TRIED}_{each}"] += 1
            continue
        gain = each.retry.retry.reward - each.retry.base.reward
        counts[BETTER if gain > 0 else WORSE if gain < 0 else SAME] += 1
        counts[SOLVED] += each.retry.retry.reward >= 1
    return counts


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
    (rewards,) = rewarded([Link(again)])
    made = rows_of((*replayed, *fresh), row.model_copy(update={"trajectory_id": again.id, "rewards": rewards}))
    if len(made) != 1:
        raise Dropped("forked")
    if not all(any(span.step >= step for span in each.spans) for each in (row, made[0])):
        raise Dropped("no_token_ids")  # turns whose log-probabilities are no numbers are not trained on
    return Retry(row, made[0], step, guidance, _reflection(made[0], pivot.reflection))


def _reflection(row: TrainRow, reply: Reply | None) -> TrainRow | None:
    """Return a reflection as a row; None where no model wrote it, or its tokens are not known."""
    turn = said(reply) if reply is not None else None
    if turn is None:
        return None
    (made,) = rows_of([turn], row.model_copy(update={"trajectory_id": f"{row.trajectory_id}/reflection"}))
    return made
