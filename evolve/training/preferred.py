"""Training on what failed beside what succeeded: pairs of episodes of one task, by DPO or SimPO.

The tokens are those that were sampled, over all turns of an episode; what the world answered is read and not trained.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.training import ledger
from evolve.training.batches import prepared
from evolve.training.supervised import Work, passes, require_some, stepped
from evolve.training.training_data import Offer, episodes
from evolve.training.turns import Replies
from policies.rl.batch import batch_of
from policies.rl.preference import Preference, Said, losses
from policies.rl.ranks import world_size
from policies.rl.rows import TrainRow
from policies.rl.trainer import Trainer

REFERENCE = "reference.json"
"""Of a training's folder: how likely each episode was under the weights that it began from."""


class Pairs(NamedTuple):
    """Rows, which episodes of them are compared, and how."""

    rows: list[TrainRow]
    pairs: list[tuple[str, str]]
    """(done right, done wrong), each by its trajectory's id."""
    preference: Preference

    @property
    def units(self) -> int:
        """Return how many pairs there are."""
        return len(self.pairs)

    @property
    def experts(self) -> int:
        """Return how many rows another model said: none, since those are no samples of the policy."""
        return 0

    @property
    def digest(self) -> str:
        """Return what tells these pairs from others."""
        told = [(row.prompt_ids, row.completion_ids) for row in self.rows]
        return hashlib.sha256(json.dumps([told, self.pairs, str(self.preference)]).encode()).hexdigest()


def preference_pairs(offer: Offer, replies: Replies, preference: Preference) -> Pairs:
    """Return each failure with a success of the same task. Raises `BadInput` where the journal offers none."""
    chosen = {each.id: each for pair in offer.pairs for each in pair}
    batch = prepared(episodes([*chosen.values()]), replies)
    told = [row for row in batch.rows if row.trained]
    known = {row.trajectory_id for row in told}
    pairs = [(right.id, wrong.id) for wrong, right in offer.pairs if {right.id, wrong.id} <= known]
    used = {name for pair in pairs for name in pair}
    rows = [row for row in told if row.trajectory_id in used]
    require_some(rows, "train tasks that succeeded once and failed once")
    return Pairs(rows, pairs, preference)


def require_pairs_fit(config: Config, recipe: str) -> None:
    """Raise `ConfigError` for settings under which pairs are not compared."""
    section = config.train
    found = {"train.epochs": section.epochs, "train.minibatches": section.minibatches, "processes": world_size()}
    if wrong := {name: value for name, value in found.items() if value != 1}:
        raise ConfigError(f"evolve train {recipe} makes one update of a batch of pairs in one process, got {wrong}")
    if section.backend != "torch":
        raise ConfigError(f"evolve train {recipe} needs train.backend = 'torch', got {section.backend!r}")


def fit_pairs(
    trainer: Trainer,
    given: Pairs,
    *,
    epochs: int,
    batch: int,
    folder: Path,
    report: Callable[[dict[str, float]], None] = lambda _: None,
) -> None:
    """Go over the pairs `epochs` times in batches, as `supervised.fit` over rows."""
    own: dict[str, list[TrainRow]] = {}
    for row in given.rows:
        own.setdefault(row.trajectory_id, []).append(row)
    folder.mkdir(parents=True, exist_ok=True)
    began = _reference(trainer, own, batch, folder / REFERENCE)

    def update(chosen: Sequence[int]) -> dict[str, float]:
        pairs = [given.pairs[at] for at in chosen]
        rows = [row for name in dict.fromkeys(name for pair in pairs for name in pair) for row in own[name]]
        now = likelihoods(trainer, rows)
        right, wrong = (
            Said(
                np.array([now[name][0] for name in side]),
                np.array([began[name] for name in side]),
                np.array([float(now[name][1]) for name in side]),
            )
            for side in zip(*pairs, strict=True)
        )
        margins = given.preference.margins(right, wrong)
        weighs: dict[str, float] = dict.fromkeys(now, 0.0)
        for (better, worse), up, down in zip(
            pairs, given.preference.weights(margins, right), given.preference.weights(margins, wrong), strict=True
        ):
            weighs[better] += up
            weighs[worse] -= down
        mean = len(rows) / len(pairs)  # the trainer divides by rows
        advantages = [np.full(len(row.spans), mean * weighs[row.trajectory_id]) for row in rows]
        return stepped(trainer, rows, advantages) | {
            "loss": float(losses(margins).mean()),
            "margin": float(margins.mean()),
            "preferred": float((margins > 0).mean()),
        }

    passes(trainer, update, Work(given.units, sorted(own), epochs, batch), folder, report)


def _reference(trainer: Trainer, own: dict[str, list[TrainRow]], batch: int, kept: Path) -> dict[str, float]:
    """Return how likely each episode is under the weights that the training begins from: computed once, before it."""
    if not kept.exists():
        names, found = [*own], dict[str, float]()
        for at in range(0, len(names), batch):
            said = likelihoods(trainer, [row for name in names[at : at + batch] for row in own[name]])
            found |= {name: logp for name, (logp, _) in said.items()}
        ledger.write(kept, json.dumps(found))
    return json.loads(kept.read_text())


def likelihoods(trainer: Trainer, rows: Sequence[TrainRow]) -> dict[str, tuple[float, int]]:
    """Return for each episode the log-probability of its trained tokens, and how many there are."""
    batch = batch_of(rows, device=trainer.device)
    logp = (trainer.logprobs(rows, batch) * batch.mask).sum(1).tolist()
    found: dict[str, tuple[float, int]] = {}
    for row, own in zip(rows, logp, strict=True):
        before, tokens = found.get(row.trajectory_id, (0.0, 0))
        found[row.trajectory_id] = (before + own, tokens + row.trained)
    return found
