"""Training on what the journal holds, without a single new rollout: on successes alone, or on groups that differ."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from evolve.seeds import seed_for
from evolve.training.batches import prepared
from evolve.training.logs import Offer, episodes
from evolve.training.turns import Replies
from memory.errors import BadInput
from policies.rl.protocols import AdvantageEstimator, Array
from policies.rl.rows import TrainRow
from policies.rl.trainer import Trainer


def rows_from(
    offer: Offer, replies: Replies, advantages: AdvantageEstimator | None = None
) -> tuple[list[TrainRow], list[Array]]:
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
    return rows, found


def fit(
    trainer: Trainer,
    rows: Sequence[TrainRow],
    advantages: Sequence[Array],
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
        order = list(range(len(rows)))
        random.Random(seed_for(trainer.settings.seed, "epoch", epoch)).shuffle(order)
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            figures = trainer.step([rows[at] for at in some], [advantages[at] for at in some])
            report({"epoch": float(epoch), "update": float(trainer.updates)} | figures)
        trainer.checkpoint(checkpoint, {"epochs": epoch + 1})
