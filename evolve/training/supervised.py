"""Training on what the journal holds, without a single new rollout: on successes alone, or on groups that differ."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from math import isnan, nan
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evolve.episode.instrumentation import watched
from evolve.seeds import seed_for
from evolve.training import ledger
from evolve.training.batches import prepared
from evolve.training.ledger import CHECKPOINT, HISTORY, METRICS
from evolve.training.training_data import Offer, episodes
from evolve.training.turns import Replies, TurnReader, erred, turns_of
from memory.errors import BadInput
from memory.records import Trajectory
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import AdvantageEstimator, Array, GroupFilter
from policies.rl.rows import TrainRow
from policies.rl.trainer import Trainer

SCORED = "scored.json"
"""Of a training's folder: log-probabilities that nobody knew, under the weights that it began from."""


class NoExamples(BadInput):
    """The journal holds nothing to train on."""


class Examples(NamedTuple):
    """Rows, and for each its turns' advantages."""

    rows: list[TrainRow]
    advantages: list[Array]

    @property
    def units(self) -> int:
        """Return how many rows there are."""
        return len(self.rows)

    @property
    def experts(self) -> int:
        """Return how many rows another model said, or the world itself."""
        return sum(row.expert for row in self.rows)

    @property
    def digest(self) -> str:
        """Return what tells these examples from others."""
        told = [(row.prompt_ids, row.completion_ids, *map(float, own)) for row, own in zip(*self, strict=True)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    @property
    def distinct(self) -> Examples:
        """Return each row once: what several attempts at a task said alike."""
        first = {(row.prompt_ids, row.completion_ids): at for at, row in reversed([*enumerate(self.rows)])}
        kept = sorted(first.values())
        return Examples([self.rows[at] for at in kept], [self.advantages[at] for at in kept])

    def joined(self, other: Examples) -> Examples:
        """Return both, in order."""
        return Examples([*self.rows, *other.rows], [*self.advantages, *other.advantages])


def success_examples(offer: Offer, replies: Replies, readers: Sequence[TurnReader] = (turns_of,)) -> Examples:
    """Return what successful episodes said, once for each reader, with advantage 1; 0 for turns that ended in errors.

    What attempts at a task said alike is taken once. Rows that others said are marked (`TrainRow.expert`). Raises
    `BadInput` where the journal offers none.
    """
    chosen = {each.id: each for each in (*offer.successes, *offer.experts)}
    experts = {each.id for each in offer.experts}
    found = Examples([], [])
    for reader in readers:
        batch = prepared(episodes([*chosen.values()]), replies, reader)
        right = [float(not erred(chosen[row.trajectory_id], span.step)) for row in batch.rows for span in row.spans]
        own = batch.advantages(np.array(right), np.ones(len(batch.episodes.rewards), dtype=bool))
        found = found.joined(Examples(*own))
    found.rows[:] = [
        (row if any(row.sampling_logprobs) else _unscored(row)).model_copy(
            update={"expert": row.trajectory_id in experts}
        )
        for row in found.rows  # one that was tokenised anew has zeros alone
    ]
    require_some(found.rows, "successful train episodes")
    return found.distinct


def group_examples(
    offer: Offer,
    replies: Replies,
    advantages: AdvantageEstimator,
    chosen: GroupFilter,
    told: Callable[[Trajectory], bool] = lambda episode: True,
) -> Examples:
    """Return what was said in tasks that did not always end alike, with the advantages that an estimator gives.

    It is of the episodes that `chosen` keeps. Older weights sampled it, so a clip bounds how far those that are trained
    have moved from them in all passes.
    An episode of which `told` is false was sampled otherwise than the policy is trained: its log-probabilities are
    unknown (nan), and count as those of the weights that the training begins with.
    Raises `BadInput` where the journal offers none.
    """
    batch = prepared(episodes([each for some in offer.groups.values() for each in some]), replies)
    kept = chosen.keep(batch.episodes)
    found = Examples(*batch.advantages(advantages(batch.episodes), kept))
    known = {each.id for some in offer.groups.values() for each in some if told(each)}
    found.rows[:] = [
        (row if row.trajectory_id in known else _unscored(row)).model_copy(update={"reused": True})
        for row in found.rows
    ]
    require_some(found.rows, "train tasks with both successes and failures, kept by train.filter,")
    return found


def _unscored(row: TrainRow) -> TrainRow:
    return row.model_copy(update={"sampling_logprobs": (nan,) * len(row.completion_ids)})


def require_some(rows: Sequence[TrainRow], wanted: str) -> None:
    """Raise `NoExamples` where there is nothing to train on."""
    if not rows:
        raise NoExamples(
            f"the journal holds no {wanted} with token ids; `evolve train plan` says what it holds: run more tasks "
            "(with run.attempts above 1 what failed is tried again), and where a server tells no ids set policy.weights"
        )


class Work(NamedTuple):
    """What a training goes over."""

    units: int
    """Rows, or pairs."""
    episodes: list[str]
    """Those that they are of, sorted."""
    epochs: int
    batch: int
    """Rows, or pairs, of an update."""


def fit(
    trainer: Trainer,
    given: Examples,
    *,
    epochs: int,
    batch: int,
    folder: Path,
    report: Callable[[dict[str, float]], None] = lambda _: None,
) -> None:
    """Go over the rows `epochs` times in batches, or go on where `folder` stands, as `passes`."""
    folder.mkdir(parents=True, exist_ok=True)
    scored = _scored(trainer, given.rows, batch, folder / SCORED)

    def update(chosen: Sequence[int]) -> dict[str, float]:
        rows = [scored.get(at, given.rows[at]) for at in chosen]
        found = stepped(trainer, rows, [given.advantages[at] for at in chosen])
        if unscored := sum(scored[at].trained for at in chosen if at in scored):
            found["unscored"] = float(unscored)
        return found | {"experts": float(sum(row.expert for row in rows))}

    work = Work(given.units, sorted({row.trajectory_id for row in given.rows}), epochs, batch)
    passes(trainer, update, work, folder, report)


def _scored(trainer: Trainer, rows: Sequence[TrainRow], batch: int, kept: Path) -> dict[int, TrainRow]:
    """Return by number the rows of groups that nobody scored, under the weights that the training begins from.

    Those are computed once, before it: a clip bounds how far all updates together have moved from them.
    """
    wanted = [at for at, row in enumerate(rows) if row.reused and any(map(isnan, row.sampling_logprobs))]
    if wanted and not kept.exists():
        found = [
            row.sampling_logprobs
            for start in range(0, len(wanted), batch)
            for row in trainer.scored([rows[at] for at in wanted[start : start + batch]])
        ]
        ledger.write(kept, json.dumps(found))
    told = json.loads(kept.read_text()) if wanted else []
    return {
        at: rows[at].model_copy(update={"sampling_logprobs": tuple(own)}) for at, own in zip(wanted, told, strict=True)
    }


def passes(
    trainer: Trainer,
    update: Callable[[Sequence[int]], dict[str, float]],
    work: Work,
    folder: Path,
    report: Callable[[dict[str, float]], None],
) -> None:
    """Let `update` learn from all of the work several times, in batches; a checkpoint follows each pass.

    Goes on where `folder` stands. `report` is told the figures of each update, and how many `updates` there will be.
    """
    checkpoint = folder / CHECKPOINT
    folder.mkdir(parents=True, exist_ok=True)
    done = int(trainer.resume(checkpoint)["epochs"]) if checkpoint.exists() else 0
    for name in (HISTORY, METRICS):
        ledger.keep(folder / name, done, by="epoch")
    for epoch in range(done, work.epochs):
        order = list(range(work.units))
        random.Random(seed_for(trainer.settings.seed, "epoch", epoch)).shuffle(order)
        for start in range(0, len(order), work.batch):
            found = update(order[start : start + work.batch])
            figures = {"epoch": float(epoch), "update": float(trainer.updates)} | found
            ledger.append(folder / METRICS, figures)
            report(figures | {"updates": float(_updates(work, trainer.settings))})
        ledger.append(folder / HISTORY, {"epoch": epoch, "episodes": work.episodes})
        trainer.checkpoint(checkpoint, {"epochs": epoch + 1})


def _updates(work: Work, settings: OptimiserOptions) -> int:
    """Return how many updates a training makes in all."""
    sizes = (min(work.batch, work.units - start) for start in range(0, work.units, work.batch))
    return work.epochs * settings.epochs * sum(min(settings.minibatches, size) for size in sizes)


@watched("fitting")
def stepped(trainer: Trainer, rows: Sequence[TrainRow], advantages: Sequence[Array]) -> dict[str, float]:
    """Make one step, and have it watched."""
    return trainer.step(rows, advantages)
