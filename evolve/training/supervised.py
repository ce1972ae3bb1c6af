"""Training on what the journal holds, without a single new rollout: on successes alone, or on groups that differ."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evolve.seeds import seed_for
from evolve.training.batches import prepared
from evolve.training.logs import Offer, episodes
from evolve.training.turns import Replies
from memory.errors import BadInput
from policies.rl.protocols import AdvantageEstimator, Array
from policies.rl.rows import TrainRow
from policies.rl.trainer import Trainer


class Examples(NamedTuple):
    """Rows, and for each its turns' advantages."""

    rows: list[TrainRow]
    advantages: list[Array]


def examples(offer: Offer, replies: Replies, advantages: AdvantageEstimator | None = None) -> Examples:
    """Return rows with their turns' advantages: 1 for all that successes say; with an estimator, those of groups.

    Raises `BadInput` where the journal offers none.
    """
    chosen = offer.successes if advantages is None else [each for some in offer.groups.values() for each in some]
    batch = prepared(episodes(chosen), replies)
    steps = np.ones(len(batch.episodes.trajectory)) if advantages is None else advantages(batch.episodes)
    rows, found = batch.advantages(steps, np.ones(len(batch.episodes.rewards), dtype=bool))
    if not rows:
        wanted = "successful train episodes" if advantages is None else "train tasks with both successes and failures"
        raise BadInput(f"the journal holds no {wanted} with token ids; `evolve train plan` says what it holds")
    return Examples(rows, found)


def fit(
    trainer: Trainer,
    given: Examples,
    *,
    epochs: int,
    batch: int,
    folder: Path,
    report: Callable[[dict[str, float]], None] = lambda _: None,
) -> None:
    """Go over the rows `epochs` times in batches, or go on where `folder` stands; a checkpoint follows each pass."""
    checkpoint = folder / "checkpoint.pt"
    folder.mkdir(parents=True, exist_ok=True)
    done = int(trainer.resume(checkpoint)["epochs"]) if checkpoint.exists() else 0
    for epoch in range(done, epochs):
        order = list(range(len(given.rows)))
        random.Random(seed_for(trainer.settings.seed, "epoch", epoch)).shuffle(order)
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            figures = trainer.step([given.rows[at] for at in some], [given.advantages[at] for at in some])
            report({"epoch": float(epoch), "update": float(trainer.updates)} | figures)
        trainer.checkpoint(checkpoint, {"epochs": epoch + 1})
