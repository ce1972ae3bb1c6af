"""Updates of a learning rate of 0, as the first of a warm-up, change no weights: alone they make no candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from evolve.config.file import changed, load_config
from evolve.training import ledger
from evolve.training.training_session import Trained, train
from policies.rl.protocols import Array, Episodes
from policies.rl.trainer import NothingToPublish
from tests.evolve.training.test_tracked import SETTINGS

pytestmark = pytest.mark.slow
WARM = {"train.warmup_updates": 1, "train.echo": 0.0}
OWN = "tests.evolve.training.test_rate_zero"


class OnlyFirst:
    """A filter that keeps the first batch alone."""

    def __init__(self) -> None:
        self._batches = 0

    def keep(self, episodes: Episodes) -> Array:
        self._batches += 1
        return np.full(len(episodes.rewards), self._batches == 1)


def praised(episodes: Episodes) -> Array:
    """Return [s], 1: every batch has a gradient."""
    return episodes.spread(episodes.rewards * 0 + 1)


class PraisedFirst:
    """Advantages: 1 in the first batch, 0 in those after it."""

    batches = 0

    def __call__(self, episodes: Episodes) -> Array:
        self.batches += 1
        return episodes.spread(episodes.rewards * 0 + (self.batches == 1))


praised_first = PraisedFirst()


def trained(folder: Path, **keys: Any) -> Trained:
    (folder / "evolve.toml").write_text(SETTINGS)
    return train(
        changed(load_config(folder / "evolve.toml"), WARM | {f"train.{key}": keys[key] for key in keys}), "run"
    )


def moved(made: Trained) -> bool:
    """Tell whether the weights of a candidate are others than those that it began with."""
    weights = load_file(made.folder / "adapter" / "adapter_model.safetensors")
    return any(value.any() for name, value in weights.items() if "lora_B" in name)


def rates(folder: Path) -> list[tuple[float, bool]]:
    """Return the learning rate of each update, and whether it had a gradient."""
    (told,) = folder.glob(f".evolve/policies/training/*/{ledger.METRICS}")
    return [(line["learning_rate"], line["gradient_norm"] > 0) for line in ledger.lines(told) if "loss" in line]


def test_the_first_update_of_a_warm_up_alone_makes_no_candidate(tmp_path: Path) -> None:
    with pytest.raises(NothingToPublish, match=r"no batch had a gradient at a learning rate above 0.*warmup_updates"):
        trained(tmp_path, filter=f"{OWN}:OnlyFirst", advantages=f"{OWN}:praised")
    assert rates(tmp_path) == [(0.0, True)]


def test_one_after_it_makes_a_candidate(tmp_path: Path) -> None:
    assert moved(trained(tmp_path, advantages=f"{OWN}:praised"))
    assert rates(tmp_path) == [(0.0, True), (1e-4, True)]


def test_so_does_one_that_goes_on_with_the_gradient_of_the_first(tmp_path: Path) -> None:
    assert moved(trained(tmp_path, advantages=f"{OWN}:praised_first"))
    assert rates(tmp_path) == [(0.0, True), (1e-4, False)]
