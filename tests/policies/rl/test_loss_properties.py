"""What holds for every loss that ships here, whatever the batch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from memory.errors import BadInput
from policies.rl import slots
from policies.rl.losses.ppo import Ppo
from policies.rl.protocols import PolicyLoss
from policies.rl.trainer import aggregate

every = pytest.mark.parametrize("name", slots.names("losses"))
HALVED = {"opmd": {"tau": 0.0}}
"""Options without which a member's gradient is a share of what it is compared with."""
patient = settings(deadline=None, max_examples=40)
seeds = given(seed=st.integers(0, 2**32))

Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def draw(seed: int, drift: float = 1.0) -> Batch:
    """Return logits [b, t, v], tokens, old log-probabilities, advantages and a mask with at least one token."""
    noise = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, 7, generator=noise, dtype=torch.float64)
    tokens = torch.randint(7, (3, 5), generator=noise)
    old = chosen(logits + drift * torch.randn(3, 5, 7, generator=noise, dtype=torch.float64), tokens)
    mask = torch.rand(3, 5, generator=noise) < 0.6
    mask[0, 0] = True
    return logits, tokens, old, torch.randn(3, 5, generator=noise, dtype=torch.float64), mask


def chosen(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]


def total(loss: PolicyLoss, batch: Batch) -> Tensor:
    logits, tokens, old, advantages, mask = batch
    return aggregate(loss(chosen(logits, tokens), old, advantages, mask)[0], mask, loss.aggregation or "token-mean")


def gradient(loss: PolicyLoss, batch: Batch) -> Tensor:
    logits = batch[0].clone().requires_grad_()
    total(loss, (logits, *batch[1:])).backward()
    assert logits.grad is not None
    return logits.grad


@every
@patient
@seeds
def test_tokens_that_the_agent_did_not_write_do_not_matter(name: str, seed: int) -> None:
    loss = slots.make("losses", name)
    logits, tokens, old, advantages, mask = batch = draw(seed)
    outside = ~mask
    changed = torch.where(outside[..., None], -3 * logits + 1, logits)
    other = (changed, tokens, old.masked_fill(outside, -9), advantages.masked_fill(outside, 50), mask)
    assert total(loss, other).item() == pytest.approx(total(loss, batch).item(), abs=1e-12)
    assert not gradient(loss, other)[outside].any()
    assert torch.allclose(gradient(loss, other), gradient(loss, batch))


@every
def test_what_stands_where_the_agent_did_not_write_may_be_no_number(name: str) -> None:
    loss = slots.make("losses", name)
    mask = torch.tensor([[True, False, False]])
    logp = torch.tensor([[-1.0, -math.inf, math.nan]], requires_grad=True)
    per_token, metrics = loss(logp, torch.tensor([[-1.0, -math.inf, 0.0]]), torch.tensor([[1.0, 0.0, math.nan]]), mask)
    per_token.sum().backward()
    assert logp.grad is not None
    assert per_token[0, 1:].tolist() == [0, 0]
    assert logp.grad[0, 1:].tolist() == [0, 0]
    assert logp.grad[0, 0] < 0
    assert all(math.isfinite(value) for value in metrics.values())


@every
@patient
@seeds
def test_where_nothing_moved_yet_the_gradient_is_that_of_reinforce(name: str, seed: int) -> None:
    loss = slots.make("losses", name, HALVED.get(name))
    logits, tokens, _, advantages, mask = draw(seed)
    batch = (logits, tokens, chosen(logits, tokens), advantages, mask)
    plain = logits.clone().requires_grad_()
    reinforce = -advantages * chosen(plain, tokens)
    aggregate(reinforce, mask, loss.aggregation or "token-mean").backward()
    assert plain.grad is not None
    assert torch.allclose(gradient(loss, batch), plain.grad)
    metrics = loss(chosen(logits, tokens), batch[2], advantages, mask)[1]
    assert {metrics.get(figure, 0.0) for figure in ("clip_fraction", "dual_clip_fraction", "approx_kl")} == {0.0}
    assert {"clip_fraction", "approx_kl"} <= set(metrics)


@patient
@seeds
def test_ppo_without_clipping_is_reinforce_weighted_by_the_ratio(seed: int) -> None:
    logits, tokens, old, advantages, mask = batch = draw(seed, drift=3.0)
    plain = logits.clone().requires_grad_()
    logp = chosen(plain, tokens)
    aggregate(-(logp.detach() - old).exp() * advantages * logp, mask, "token-mean").backward()
    assert plain.grad is not None
    unclipped = Ppo(low=1.0, high=math.inf, dual_clip=None)
    assert torch.allclose(gradient(unclipped, batch), plain.grad)


@every
def test_a_policy_that_moved_too_far_still_has_a_finite_loss(name: str) -> None:
    loss = slots.make("losses", name)
    logp = torch.tensor([[-1e4, -1e-3]], requires_grad=True)
    old, advantages = torch.tensor([[-1e-3, -1e4]]), torch.tensor([[1.0, -1.0]])
    per_token, _ = loss(logp, old, advantages, torch.ones(1, 2, dtype=torch.bool))
    per_token.sum().backward()
    assert logp.grad is not None
    assert per_token.isfinite().all()
    assert logp.grad.isfinite().all()


@every
def test_one_value_per_row_is_refused_rather_than_broadcast(name: str) -> None:
    loss = slots.make("losses", name)
    square, mask = torch.zeros(3, 3), torch.ones(3, 3, dtype=torch.bool)
    with pytest.raises(BadInput, match="repeat what is one value per row"):
        loss(square, square, torch.zeros(3), mask)
    with pytest.raises(BadInput, match=r"got a mask \(3, 3\) of torch\.float32"):
        loss(square, square, square, mask.float())
