"""Losses and gradients of known batches, as computed with the reference code; gradients also in closed form."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from policies.rl.losses.cispo import Cispo
from policies.rl.losses.dapo import Dapo
from policies.rl.losses.gspo import Gspo
from policies.rl.losses.ppo import Ppo
from policies.rl.protocols import Aggregation, PolicyLoss
from policies.rl.trainer import aggregate

MASK = torch.tensor([[True, True, True, False], [True, True, True, True]])
RATIOS = torch.tensor([[1.5, 0.5, 1.1, 1.0], [3.5, 0.7, 1.25, 1.0]], dtype=torch.float64)
ADVANTAGES = torch.tensor([[1.0] * 4, [-1.0] * 4], dtype=torch.float64)


def close(values: object) -> object:
    return pytest.approx(values, abs=1e-6)


def run(loss: PolicyLoss, way: Aggregation) -> tuple[float, Tensor, dict[str, float]]:
    """Return the loss, its gradient by log-probability, and the metrics."""
    old = torch.full_like(RATIOS, -1.0)
    logp = (old + RATIOS.log()).requires_grad_()
    per_token, metrics = loss(logp, old, ADVANTAGES, MASK)
    total = aggregate(per_token, MASK, way)
    total.backward()
    assert logp.grad is not None
    return total.item(), logp.grad, metrics


def test_ppo_clips_above_below_and_twice() -> None:
    total, gradient, metrics = run(Ppo(high=0.28), "token-mean")
    assert total == close(0.452857)
    assert gradient.tolist() == [close([0, -0.5 / 7, -1.1 / 7, 0]), close([0, 0, 1.25 / 7, 1 / 7])]
    assert gradient[0, 1:3].tolist() == pytest.approx([-0.07143, -0.15714], abs=5e-6)
    assert metrics["clip_fraction"] == close(0.285714)
    assert metrics["dual_clip_fraction"] == close(0.142857)
    assert metrics["approx_kl"] == close(-0.132409)


def test_ppo_averages_rows_when_told_so() -> None:
    assert run(Ppo(high=0.28), "seq-mean-token-mean")[0] == close(0.276250)


def test_ppo_with_its_own_bounds_clips_at_a_fifth() -> None:
    assert run(Ppo(), "token-mean")[0] == close((-1.2 - 0.5 - 1.1 + 3 + 0.8 + 1.25 + 1) / 7)
    assert run(Ppo(dual_clip=None), "token-mean")[0] == close((-1.2 - 0.5 - 1.1 + 3.5 + 0.8 + 1.25 + 1) / 7)


def test_dapo_is_ppo_with_more_room_upwards_and_a_mean_over_tokens() -> None:
    dapo = Dapo()
    assert dapo.aggregation == "token-mean"
    assert run(dapo, dapo.aggregation)[0] == close(0.452857)


def test_dual_clip_bounds_what_is_pushed_down() -> None:
    ratios, advantages = torch.tensor([[2.0, 2.0, 0.5]]), torch.tensor([[2.0, -2.0, 2.0]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    loss, _ = Ppo(dual_clip=1.5)(ratios.log(), torch.zeros(1, 3), advantages, mask)
    assert loss[0].tolist() == close([-2.4, 3.0, -1.0])


def test_gspo_gives_each_token_the_ratio_of_its_row() -> None:
    total, gradient, metrics = run(Gspo(low=0.2, high=0.28), "seq-mean-token-mean")
    assert total == close(0.192493)
    assert gradient[0].tolist() == close([*[-0.937889 / 6] * 3, 0])
    assert gradient[1].tolist() == close([1.322876 / 8] * 4)
    assert gradient[:, 0].tolist() == pytest.approx([-0.15631, 0.16536], abs=5e-6)
    assert metrics["clip_fraction"] == 0  # the clip binds on one side only


def test_gspo_averages_over_rows_and_clips_narrowly() -> None:
    assert Gspo().aggregation == "seq-mean-token-mean"
    old = torch.full((1, 2), -1.0, dtype=torch.float64)
    logp = (old + torch.tensor([[0.001, 0.003]])).requires_grad_()
    loss, metrics = Gspo()(logp, old, torch.ones_like(old), torch.ones(1, 2, dtype=torch.bool))
    assert loss.tolist() == [close([-1.0004, -1.0004])]
    assert metrics["clip_fraction"] == 1
    loss.sum().backward()
    assert logp.grad is not None
    assert not logp.grad.any()


def test_gspo_bounds_the_ratio_of_a_row_that_ran_away() -> None:
    old = torch.full((1, 2), -16.0, dtype=torch.float64)
    loss, _ = Gspo()(old + 15, old, -torch.ones_like(old), torch.ones(1, 2, dtype=torch.bool))
    assert loss.tolist() == [close([math.exp(10)] * 2)]


def test_cispo_clips_the_weight_and_keeps_every_gradient() -> None:
    total, gradient, _ = run(Cispo(low=0.2), "token-mean")
    assert total == close(0.053972)
    assert gradient[0].tolist() == close([-1.28 / 7, -0.8 / 7, -1.1 / 7, 0])
    assert gradient[1].tolist() == close([1.28 / 7, 0.8 / 7, 1.25 / 7, 1 / 7])
    assert gradient.flatten().tolist() == pytest.approx(
        [-0.18286, -0.11429, -0.15714, 0, 0.18286, 0.11429, 0.17857, 0.14286], abs=5e-6
    )
    assert run(Cispo(low=0.2), "seq-mean-token-mean")[0] == close(0.176838)


def test_cispo_weights_stay_within_the_bounds() -> None:
    ratios = torch.tensor([[1.0, 1.14, 1.56, 0.4]], dtype=torch.float64)
    logp = ratios.log().requires_grad_()
    loss, _ = Cispo(low=0.2)(
        logp, torch.zeros_like(ratios), torch.ones_like(ratios), torch.ones(1, 4, dtype=torch.bool)
    )
    loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad[0].tolist() == close([-1, -1.14, -1.28, -0.8])
