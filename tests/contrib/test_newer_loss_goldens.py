"""Experimental losses on known batches: figures of the reference code, gradients by torch against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from contrib.losses.aepo import Aepo
from contrib.losses.bapo import Bapo
from contrib.losses.gmpo import Gmpo
from contrib.losses.opmd import Opmd
from contrib.losses.soft_adaptive import SoftAdaptive
from memory.errors import BadInput
from policies.rl.losses.ppo import Ppo
from policies.rl.losses.sft import Sft
from policies.rl.protocols import PolicyLoss
from policies.rl.trainer import aggregate
from tests.policies.rl.test_loss_goldens import ADVANTAGES, MASK, RATIOS, close, run


def test_gmpo_takes_the_geometric_mean_of_clipped_ratios() -> None:
    """g = .899474 and 1.375720; the ratios 1.5 (A > 0) and .7 (A < 0) are clipped and have no gradient."""
    gmpo = Gmpo(low=0.2, high=0.28)
    total, gradient, metrics = run(gmpo, "seq-mean-token-mean")
    assert total == close(0.238123)
    first, second = (
        math.exp((0.28 + math.log(0.5) + math.log(1.1)) / 3),
        math.exp((math.log(3.5) - 0.2 + math.log(1.25)) / 4),
    )
    assert (second - first) / 2 == close(0.238123)
    assert gradient[0].tolist() == close([0, -first / 6, -first / 6, 0])
    assert gradient[1].tolist() == close([second / 8, 0, second / 8, second / 8])
    assert metrics["clip_fraction"] == close(2 / 7)


def test_gmpo_averages_over_rows_with_the_papers_wide_clip() -> None:
    assert Gmpo().aggregation == "seq-mean-token-mean"
    one, mask = torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool)
    loss, _ = Gmpo()(torch.tensor([[2.0, 2.0]]), torch.zeros(1, 2), one, mask)
    assert loss[0].tolist() == pytest.approx([-math.exp(0.4)] * 2)
    loss, _ = Gmpo()(torch.tensor([[-2.0, -2.0]]), torch.zeros(1, 2), -one, mask)
    assert loss[0].tolist() == pytest.approx([math.exp(-0.4)] * 2)


def test_the_soft_gate_is_that_of_verl() -> None:
    total, gradient, metrics = run(SoftAdaptive(), "seq-mean-token-mean")
    assert total == close(0.135537)
    for row, (tau, size) in enumerate([(1.0, 3), (1.05, 4)]):
        gates = [1 / (1 + math.exp(-tau * (ratio - 1))) for ratio in RATIOS[row].tolist()]
        slopes = [4 * gate * (1 - gate) * ratio for gate, ratio in zip(gates, RATIOS[row].tolist(), strict=True)]
        expected = [-ADVANTAGES[row, 0].item() * slope / (2 * size) for slope in slopes]
        assert gradient[row].tolist() == close(
            [each if on else 0 for each, on in zip(expected, MASK[row], strict=True)]
        )
    assert metrics["clip_fraction"] == 0
    with pytest.raises(BadInput, match="expected temperatures above 0"):
        SoftAdaptive(negative=0)


@pytest.mark.parametrize(
    ("target", "total", "lower", "upper"),
    [
        (0.3, 0.45, 0.6, 1.2),
        (0.5, 0.421429, 0.8, 2.0),
        (0.45, (-1.35 - 0.5 - 1.1 + 3 + 0.8 + 1.25 + 1) / 7, 0.8, 1.35),
    ],
)
def test_bapo_moves_its_bounds_until_the_good_have_their_share(
    target: float, total: float, lower: float, upper: float
) -> None:
    """The last by hand: at .8 rho is (upper + 1.6) / 6.55, so .45 needs 1.3475; the steps reach 1.35."""
    found, _, metrics = run(Bapo(target=target), "token-mean")
    assert found == close(total)
    assert (metrics["lower"], metrics["upper"]) == close((lower, upper))


def test_bapo_raises_the_lower_bound_first() -> None:
    """2.8 / 6.45 is too little, at .8 even less; (.8, 1.25) has .435115, and (.6, 1.25) would have .441860."""
    _, _, metrics = run(Bapo(target=0.4345), "token-mean")
    assert (metrics["lower"], metrics["upper"]) == close((0.8, 1.25))


def test_bapo_without_a_negative_advantage_searches_nothing() -> None:
    ratios = torch.tensor([[2.0, 0.5]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    loss, metrics = Bapo()(ratios.log(), torch.zeros(1, 2), torch.ones(1, 2), mask)
    assert (metrics["lower"], metrics["upper"]) == (0.6, 1.2)
    assert loss[0].tolist() == pytest.approx([-1.2, -0.5])
    with pytest.raises(BadInput, match="expected 0 < lower"):
        Bapo(lower=0.9)


def test_aepo_has_the_loss_of_ppo_and_keeps_the_gradient_of_what_it_clips_above() -> None:
    total, gradient, metrics = run(Aepo(high=0.28), "token-mean")
    assert total == close(0.452857)
    assert gradient.tolist() == [close([-1.28 / 7, -0.5 / 7, -1.1 / 7, 0]), close([0, 0, 1.25 / 7, 1 / 7])]
    assert metrics == run(Ppo(high=0.28), "token-mean")[2]


@pytest.mark.parametrize(
    ("loss", "expected"), [(Opmd(), -0.0095899478), (Opmd(tau=0), -0.0191798955), (Ppo(dual_clip=None), 0.2856046855)]
)
def test_opmd_is_that_of_trinity(loss: PolicyLoss, expected: float) -> None:
    """Trinity-RFT's batch of random numbers; its figure for PPO shows that this is the same batch."""
    torch.manual_seed(42)
    logp, old, _ = (2 * torch.rand(5, 20) - 1 for _ in range(3))
    mask, advantages = torch.rand(5, 20) > 0.5, 2 * torch.rand(5, 20) - 1
    assert aggregate(loss(logp, old, advantages, mask)[0], mask, "token-mean").item() == close(expected)
    said = Sft()(logp, old, torch.ones(5, 20), mask)[0]
    assert aggregate(said, mask, "token-mean").item() == close(-0.0756018683)


def test_opmd_takes_a_step_in_proportion_and_no_ratio() -> None:
    _, gradient, _ = run(Opmd(), "token-mean")
    assert gradient.tolist() == [close([-1 / 14] * 3 + [0]), close([1 / 14] * 4)]
    with pytest.raises(BadInput, match="got tau=-1"):
        Opmd(tau=-1)
