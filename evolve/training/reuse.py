"""Rollout replay: a part of each batch are groups of earlier iterations, which cost no rollouts.

Source: DOTS + RR, arXiv 2506.05316. The groups of an iteration that taught something go into a buffer, which keeps the
newest; where it is full the oldest one leaves. Each iteration draws from it, all alike and none twice, and rolls out
the rest of its batch. A group is put in once, when it was rolled out, and may be drawn again until it leaves.

Off-policy. A reused row keeps the log-probabilities of the weights that sampled it, and the ratio of its loss is to
those (`policies.rl.trainer`): clipped, a token that all updates since have moved far enough is moved no further. With a
correction the loss stays with the weights before the update, and the correction weighs how far these are from the
sampler: with `tis` that is the objective of the paper's released code, and a cap.

Advantages are computed anew in the batch that a group is in. What compares within a group finds the same numbers, as
its rewards are what they were; what looks at the whole batch sees the one that is learned from. Its baseline is the one
from before it was rolled out: today's estimate has counted its outcomes, and would favour them.

One departure from the paper, which keeps the groups whose mean reward is neither 0 nor 1: here `train.filter` decides,
as for a refill; by default it wants that rewards differ.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from evolve.config.training import RolloutReuse, TrainSection
from evolve.errors import ConfigError
from evolve.seeds import seed_for
from evolve.training import ledger
from evolve.training.batches import Prepared, ScoredEpisode, assembled
from evolve.training.ledger import REUSED
from memory.records import Frozen
from policies.rl.rows import TrainRow


class Group(Frozen):
    """A group that taught something, with all that is needed to learn from it again."""

    iteration: int
    """That rolled it out."""
    episodes: tuple[ScoredEpisode, ...]
    rows: tuple[TrainRow, ...]


def require_fits(section: TrainSection) -> None:
    """Raise `ConfigError` where groups are to be reused, and `[train]` does not go together with that."""
    share, branches, partial = section.reuse.share, section.branching.branches, section.partial
    if not share:
        return
    ahead = partial.oversampling > 1 or partial.off_policy == "masked"
    if section.backend != "torch" or section.candidates or section.retries or branches or ahead:
        raise ConfigError(
            f"got train.reuse.share = {share} with backend = {section.backend!r}, candidates = {section.candidates}, "
            f"retries = {section.retries!r}, branches = {branches}, partial.oversampling = {partial.oversampling}, "
            f"partial.off_policy = {partial.off_policy!r}; what is reused are whole groups of plain rollouts, by our "
            "own trainer: set 0"
        )
    if section.loss.name == "sft" and not section.correction.name:
        raise ConfigError(
            f"got train.reuse.share = {share} with loss = 'sft', which has no ratio to the weights that sampled; take "
            'another loss, set train.correction = "tis", or set 0'
        )
    if not 1 <= (wanted := section.reuse.groups(section.chains)) <= section.reuse.buffer:
        raise ConfigError(
            f"got train.reuse.share = {share} of chains = {section.chains}, which is {wanted} groups, with buffer = "
            f"{section.reuse.buffer}; expected 1 group or more, and a buffer for as many"
        )


def drawn(folder: Path, reuse: RolloutReuse, chains: int, iteration: int, seed: int) -> list[Group]:
    """Return the groups that an iteration reuses; fewer than it wants where the buffer does not hold so many."""
    if not reuse.share:
        return []
    held = _held(folder, iteration, reuse.buffer)
    return random.Random(seed_for(seed, "reuse", iteration)).sample(held, min(reuse.groups(chains), len(held)))


def joined(batch: Prepared, groups: Sequence[Group]) -> Prepared:
    """Return a batch with reused groups; its counts stay those of what was rolled out."""
    if not groups:
        return batch
    episodes = [*batch.scored, *(each for group in groups for each in group.episodes)]
    return assembled(episodes, [*batch.rows, *(row for group in groups for row in group.rows)], batch.counts)


def keep(folder: Path, reuse: RolloutReuse, iteration: int, batch: Prepared, trained: Sequence[TrainRow]) -> None:
    """Put into the buffer the groups of a `batch` that was rolled out of which something is among the `trained` rows.

    What they push out stays in the file until the next iteration ends: one that is done again finds it there.
    """
    if not reuse.share:
        return
    taught = {row.chain_id for row in trained}
    new = [
        Group(
            iteration=iteration,
            episodes=tuple(each for each in batch.scored if each.chain_id == name),
            rows=tuple(row.model_copy(update={"reused": True}) for row in batch.rows if row.chain_id == name),
        )
        for name in dict.fromkeys(each.chain_id for each in batch.scored)
        if name in taught
    ]
    every = (*_held(folder, iteration, reuse.buffer), *new)
    ledger.write(folder / REUSED, "".join(json.dumps(each.model_dump(mode="json")) + "\n" for each in every))


def _held(folder: Path, iteration: int, size: int) -> list[Group]:
    """Return what the buffer holds when an iteration begins, the oldest first."""
    before = [line for line in ledger.lines(folder / REUSED) if line["iteration"] < iteration]
    return [Group.model_validate(line) for line in before[-size:]]
