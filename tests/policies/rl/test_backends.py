"""TRL behind the trainer's protocol: the same update as ours, the same files, and a refusal by name for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memory.errors import BadInput
from policies.errors import PolicyRefused
from policies.local.loading import load_model, load_tokenizer
from policies.local.local_policy import POCKET
from policies.rl.backends import make_trainer
from policies.rl.batch import batch_of
from policies.rl.corrections.tis import Tis
from policies.rl.losses.cispo import Cispo
from policies.rl.losses.dapo import Dapo
from policies.rl.losses.gspo import Gspo
from policies.rl.losses.ppo import Ppo
from policies.rl.losses.sft import Sft
from policies.rl.optimising import OptimiserOptions
from policies.rl.trainer import Trainer, TrainingStopped
from policies.rl.trl import grpo_settings
from tests.policies.rl.test_trainer import ADVANTAGES, ROWS, model, weights

pytestmark = pytest.mark.slow
_ = model  # a fixture
SAME = [np.full_like(each, each[0]) for each in ADVANTAGES]
"""One advantage a row."""


@pytest.fixture(scope="module")
def chat(model: Path) -> Path:
    """The small random model, with a tokenizer that TRL may ask for what ends a text."""
    load_tokenizer(str(POCKET)).save_pretrained(model)
    return model


def made(backend: Any, chat: Path, loss: Any = None, **settings: Any) -> Trainer:
    chosen = OptimiserOptions(**({"learning_rate": 1e-2, "rank": 4, "max_tokens": 32} | settings))
    return make_trainer(backend, chat, loss or Ppo(), chosen)


@pytest.mark.parametrize(
    "loss",
    [
        Ppo(),
        Ppo(low=0.01, high=0.01, dual_clip=1.02, aggregation="seq-mean-token-mean"),
        Ppo(dual_clip=None, aggregation="seq-mean-token-sum"),
        Ppo(low=0.05, aggregation="seq-mean-token-sum-norm"),
        Dapo(),
        Cispo(),
        Gspo(low=0.01, high=0.02),
    ],
)
@pytest.mark.parametrize("pack_tokens", [4096, 64])
def test_trl_makes_the_update_that_our_trainer_makes(chat: Path, loss: Any, pack_tokens: int) -> None:
    advantages = SAME if isinstance(loss, Gspo) else ADVANTAGES
    rows = [row.model_copy(update={"prompt_ids": (*range(10, 22), *row.prompt_ids)}) for row in (*ROWS, ROWS[1])]
    settings = {"epochs": 3, "pack_tokens": pack_tokens}
    ours, theirs = (made(each, chat, loss, **settings) for each in ("torch", "trl_sync"))
    a, b = (each.step(rows, [*advantages, advantages[1]]) for each in (ours, theirs))
    assert b["clip_fraction"] > 0 or isinstance(loss, Cispo)
    for name in ("loss", "entropy", "gradient_norm"):
        assert a[name] == pytest.approx(b[name], abs=2e-5, rel=2e-4), name
    batch = batch_of(ROWS, ADVANTAGES)
    torch.testing.assert_close(ours.logprobs(ROWS, batch), theirs.logprobs(ROWS, batch), rtol=0, atol=1e-3)
    assert theirs.updates == ours.updates == 3


def test_a_trl_training_that_is_resumed_goes_on_as_if_it_had_not_stopped(chat: Path, tmp_path: Path) -> None:
    through, first = made("trl_sync", chat, minibatches=2), made("trl_sync", chat, minibatches=2)
    for each in (through, first):
        each.step(ROWS, ADVANTAGES)
    first.checkpoint(tmp_path / "checkpoint.pt", {"iterations": 1})
    second = made("trl_sync", chat, minibatches=2)
    assert second.resume(tmp_path / "checkpoint.pt") == {"iterations": 1}
    for each in (through, second):
        each.step(ROWS, ADVANTAGES)
    assert torch.equal(weights(through), weights(second))


def test_trl_keeps_to_our_schedule_killed_or_not(chat: Path, tmp_path: Path) -> None:
    settings = {"schedule": "linear", "warmup_updates": 1, "horizon": 4}
    ours, theirs = (made(each, chat, **settings) for each in ("torch", "trl_sync"))
    for _ in range(2):
        assert ours.step(ROWS, SAME)["learning_rate"] == theirs.step(ROWS, SAME)["learning_rate"]
    theirs.checkpoint(tmp_path / "checkpoint.pt")
    second = made("trl_sync", chat, **settings)
    second.resume(tmp_path / "checkpoint.pt")
    rates = [[each.step(ROWS, SAME)["learning_rate"] for _ in range(2)] for each in (ours, theirs, second)]
    assert rates == [pytest.approx([1e-2 * 2 / 3, 1e-2 / 3])] * 3
    assert torch.equal(weights(theirs), weights(second))
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=0, atol=1e-3)


def test_a_saved_adapter_of_trl_is_what_was_trained_and_our_trainer_goes_on_from_it(chat: Path, tmp_path: Path) -> None:
    theirs = made("trl_sync", chat)
    theirs.step(ROWS, ADVANTAGES)
    theirs.save(tmp_path / "v1")
    loaded = load_model(str(chat), str(tmp_path / "v1")).state_dict()
    for name, value in theirs.merged():
        torch.testing.assert_close(loaded[name], value, rtol=0, atol=1e-6)
    ours = make_trainer("torch", chat, Ppo(), OptimiserOptions(rank=4), start=tmp_path / "v1")
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=0, atol=1e-6)


def test_a_gradient_of_trl_that_is_no_number_stops_and_leaves_the_weights(chat: Path) -> None:
    theirs = made("trl_sync", chat)
    before = weights(theirs)
    with pytest.raises(TrainingStopped, match="lower learning_rate"):
        theirs.step(ROWS, [np.full_like(each, np.inf) for each in ADVANTAGES])
    assert torch.equal(before, weights(theirs))
    theirs.step(ROWS, ADVANTAGES)
    assert torch.isfinite(weights(theirs)).all()


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        (Sft(), "Sft"),
        (Cispo(low=0.2), r"Cispo\(low=0.2"),
        (Cispo(aggregation="seq-mean-token-mean"), "the aggregation seq-mean-token-mean"),
        (Ppo(dual_clip=1.1), "dual_clip=1.1"),
    ],
)
def test_trl_refuses_by_name_what_it_does_not_compute(chat: Path, loss: Any, named: str) -> None:
    with pytest.raises(PolicyRefused, match=f'{named}.*train.backend = "torch"'):
        made("trl_sync", chat, loss)


def test_trl_takes_every_loss_it_computes_with_its_own_options() -> None:
    for loss in (Ppo(), Dapo(), Gspo(), Cispo()):
        assert grpo_settings(loss, OptimiserOptions())["loss_type"]


def test_trl_refuses_corrections_and_several_advantages_where_the_ratio_is_of_the_row(chat: Path) -> None:
    with pytest.raises(PolicyRefused, match=r"Tis\(.*train.backend"):
        make_trainer("trl_sync", chat, Ppo(), OptimiserOptions(), correction=Tis())
    with pytest.raises(BadInput, match="gspo takes one advantage a row"):
        made("trl_sync", chat, Gspo()).step(ROWS, ADVANTAGES)
