"""Terminal ECHO: what the world answered is learned beside what the policy wrote, with a weight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from policies.errors import PolicyRefused
from policies.rl import batch as batch_module
from policies.rl.backends import make_trainer
from policies.rl.batch import batch_of
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import Retry
from policies.rl.rows import Span, TrainRow, Turn, rows_of
from policies.rl.trainer import Trainer
from policies.rl.transforms.r3l import r3l

SETTINGS = {"learning_rate": 1e-2, "rank": 4, "dtype": "float32", "max_grad_norm": 1e9}


def row(name: str, prompt: list[int], *said: tuple[list[int], list[int]]) -> TrainRow:
    """Return an episode of turns, each with what the world answered to it; nothing after the last."""
    ids: list[int] = []
    spans: list[Span] = []
    for step, (own, answer) in enumerate(said):
        spans.append(Span(start=len(ids), stop=len(ids) + len(own), step=step, policy_version="v"))
        ids += [*own, *answer]
    ids = ids[: spans[-1].stop]
    own = [any(span.start <= at < span.stop for span in spans) for at in range(len(ids))]
    return TrainRow(
        trajectory_id=name,
        prompt_ids=tuple(prompt),
        completion_ids=tuple(ids),
        sampling_logprobs=tuple(-1.0 if each else 0.0 for each in own),
        spans=tuple(spans),
    )


ROWS = [
    row("a", [5, 6, 7], ([11, 12], [30, 31, 32]), ([13], [33]), ([14], [])),
    row("b", [5, 6, 7], ([11, 15], [34, 35]), ([16, 17], [])),
    row("c", [8], ([20], [])),
]
ADVANTAGES = [np.array([1.0, 0.5, -1.0]), np.array([-1.0, 0.25]), np.array([0.7])]
WORLD = [[2, 3, 4, 6], [2, 3], []]
"""Places in the completions that the world wrote."""


def test_what_the_policy_wrote_is_nothing_that_the_world_said() -> None:
    whole = Retry(base=ROWS[0], retry=ROWS[0], step=1, guidance=(3, 3))
    rows = r3l([whole])
    batch = batch_of(rows, [np.zeros(len(each.spans)) for each in rows], world=True)
    assert batch.world is not None
    assert [row.nonzero()[:, 0].tolist() for row in batch.world] == [WORLD[0]] * 3
    turns = [
        Turn(step=0, prompt_ids=(5,), token_ids=(11, 12), logprobs=(-1.0, float("nan")), policy_version="v"),
        Turn(step=1, prompt_ids=(5, 11, 12, 30), token_ids=(13,), logprobs=(-1.0,), policy_version="v"),
    ]
    broken = rows_of(turns, ROWS[2])
    batch = batch_of(broken, [np.zeros(1)], world=True)
    assert batch.world is not None
    assert batch.world[0].nonzero()[:, 0].tolist() == [2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2
    )
    path = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def trainer(model: Path, echo: float, **more: object) -> Trainer:
    return Trainer(model, Ppo(), OptimiserOptions.model_validate(SETTINGS | {"echo": echo} | more))


def answered(made: Trainer) -> torch.Tensor:
    """Return -log p of each token that the world wrote, each row computed alone."""
    found: list[torch.Tensor] = []
    for each, places in zip(ROWS, WORLD, strict=True):
        ids = torch.tensor([[*each.prompt_ids, *each.completion_ids]])
        every = torch.log_softmax(made.model(input_ids=ids).logits[0], -1)
        at = torch.tensor([len(each.prompt_ids) + place for place in places], dtype=torch.long)
        found.append(-every[at - 1, ids[0, at]])
    return torch.cat(found)


def gradients(made: Trainer) -> dict[str, torch.Tensor]:
    return {name: each.grad.clone() for name, each in made.model.named_parameters() if each.grad is not None}


def pure(made: Trainer, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the gradients that the trainer makes of the rows, without a step."""
    world = made.settings.echo > 0
    batch = batch_of(ROWS, ADVANTAGES, world=world)
    made.optimizer.zero_grad()
    made._gradient(ROWS, batch, None, weights)
    return gradients(made)


def test_tokens_that_are_skipped_move_no_other_log_probability(model: Path) -> None:
    turns = [
        Turn(step=0, prompt_ids=(5,), token_ids=(11, 12), logprobs=(-1.0, float("nan")), policy_version="v"),
        Turn(step=1, prompt_ids=(5, 11, 12, 30), token_ids=(13,), logprobs=(-1.0,), policy_version="v"),
    ]
    rows = rows_of(turns, ROWS[2])
    made = trainer(model, 0.5)
    (found,) = made.logprobs(rows, batch_of(rows, [np.zeros(1)], world=True))
    every = torch.log_softmax(made.model(input_ids=torch.tensor([[5, 11, 12, 30, 13]])).logits[0], -1)
    torch.testing.assert_close(found, torch.stack([torch.zeros(()), torch.zeros(()), every[2, 30], every[3, 13]]))


@pytest.mark.parametrize("numbers", [batch_module.NUMBERS, 80])
def test_the_gradient_is_that_of_both_losses(model: Path, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "NUMBERS", numbers)  # logits in one part, or in several
    with_echo, without = trainer(model, 0.5), trainer(model, 0.0)
    plain = batch_of(ROWS, ADVANTAGES)
    policy = pure(without, plain.mask / plain.mask.sum())
    both = batch_of(ROWS, ADVANTAGES, world=True)
    assert both.world is not None
    assert int(both.world.sum()) == sum(map(len, WORLD))
    found = pure(with_echo, both.mask / both.mask.sum() + both.world / both.world.sum())
    without.optimizer.zero_grad()
    (0.5 * answered(without).mean()).backward()
    expected = gradients(without)
    assert set(found) == set(policy)
    for name, value in found.items():
        torch.testing.assert_close(value, policy[name] + expected.get(name, 0.0), rtol=1e-4, atol=1e-7)
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-4


def test_what_the_world_answers_gets_likelier_and_is_told(model: Path) -> None:
    made, control = trainer(model, 1.0), trainer(model, 0.0)
    before = answered(made).mean().item()
    told = [made.step(ROWS, ADVANTAGES)["echo"] for _ in range(40)]
    for _ in range(40):
        assert "echo" not in control.step(ROWS, ADVANTAGES)
    assert told[0] == pytest.approx(before, rel=1e-4)
    assert told[-1] < before - 0.5
    assert answered(control).mean().item() > before - 0.1


def test_rows_in_which_nothing_was_answered_are_trained_as_without(model: Path) -> None:
    one, other = trainer(model, 1.0), trainer(model, 0.0)
    told, expected = one.step(ROWS[2:], ADVANTAGES[2:]), other.step(ROWS[2:], ADVANTAGES[2:])
    assert told["loss"] == expected["loss"]
    assert told["echo"] == 0
    assert told["gradient_norm"] == expected["gradient_norm"]


def test_trl_refuses_it(model: Path) -> None:
    settings = OptimiserOptions(echo=0.1)
    with pytest.raises(PolicyRefused, match=r"trl_sync got echo 0\.1"):
        make_trainer("trl_sync", model, Ppo(), settings)
