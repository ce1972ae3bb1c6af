"""Token losses become one number, and KL divergence is estimated per token."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import BadInput
from policies.rl.aggregation import WAYS, aggregate, token_weights
from policies.rl.kl import Estimator, kl
from policies.rl.protocols import Aggregation

LOSS = torch.tensor([[1.0, 2, 3, 4], [10, 20, 30, 40]])
MASK = torch.tensor([[True, True, True, False], [True, True, True, True]])


@pytest.mark.parametrize(
    ("way", "expected"),
    [("token-mean", 15.142858), ("seq-mean-token-sum", 53), ("seq-mean-token-mean", 13.5)],
)
def test_means_over_tokens_and_over_rows(way: Aggregation, expected: float) -> None:
    assert aggregate(LOSS, MASK, way).item() == pytest.approx(expected, abs=2e-6)


def test_the_norm_divides_by_rows_and_limit_while_verl_divides_by_the_padded_length_alone() -> None:
    ours = aggregate(LOSS, MASK, "seq-mean-token-sum-norm", max_tokens=4).item()
    assert ours == pytest.approx(106 / (2 * 4))
    assert 2 * ours == pytest.approx(26.5)
    assert aggregate(LOSS, MASK, "seq-mean-token-sum-norm", max_tokens=8).item() == pytest.approx(ours / 2)


@pytest.mark.parametrize("way", WAYS)
def test_rows_without_a_trained_token_and_padding_change_nothing(way: Aggregation) -> None:
    more = torch.zeros(3, 6)
    more[:2, :4], more[2], more[:2, 4:] = LOSS, math.nan, math.inf
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[:2, :4] = MASK
    assert aggregate(more, mask, way, 4).item() == pytest.approx(aggregate(LOSS, MASK, way, 4).item())


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), cut=st.integers(1, 4))
def test_a_batch_cut_into_parts_sums_to_the_same_loss(way: Aggregation, seed: int, cut: int) -> None:
    noise = torch.Generator().manual_seed(seed)
    loss, mask = torch.randn(5, 4, generator=noise), torch.rand(5, 4, generator=noise) < 0.5
    mask[0, 0] = True
    weighted = loss * token_weights(mask, way, 4)
    parts = weighted[:cut].sum() + weighted[cut:].sum()
    assert parts.item() == pytest.approx(aggregate(loss, mask, way, 4).item(), abs=1e-5)


def test_what_has_no_answer_is_refused() -> None:
    with pytest.raises(BadInput, match="got aggregation 'mean'; expected one of token-mean, seq-mean-token-sum"):
        aggregate(LOSS, MASK, "mean")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="without a trained token"):
        aggregate(LOSS, torch.zeros_like(MASK), "token-mean")
    with pytest.raises(BadInput, match="got max_tokens=None; seq-mean-token-sum-norm expects"):
        aggregate(LOSS, MASK, "seq-mean-token-sum-norm")


REF = torch.zeros(3, dtype=torch.float64)
LOGP = torch.tensor([1.5, 0.5, 1.1], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("k1", [0.405465, -0.693147, 0.095310]),
        ("abs", [0.405465, 0.693147, 0.095310]),
        ("mse", [0.082201, 0.240227, 0.004542]),
        ("k3", [0.072132, 0.306853, 0.004401]),
    ],
)
def test_kl_is_estimated_from_one_token(estimator: Estimator, expected: list[float]) -> None:
    assert kl(LOGP, REF, estimator).tolist() == pytest.approx(expected, abs=1e-6)


def test_k3_is_bounded_so_that_one_token_cannot_rule_the_batch() -> None:
    logp = torch.tensor([-1e4, -5.0, 1e4], requires_grad=True)
    estimate = kl(logp, torch.zeros(3))
    assert estimate.tolist() == [10, 10, 10]
    estimate.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == [0, 0, 0]


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_k1_and_k3_average_to_the_divergence(seed: int) -> None:
    noise = torch.Generator().manual_seed(seed)
    policy, ref = torch.rand(2, 6, generator=noise, dtype=torch.float64).log_softmax(-1)
    divergence = (policy.exp() * (policy - ref)).sum().item()
    for estimator in ("k1", "k3"):
        assert (policy.exp() * kl(policy, ref, estimator)).sum().item() == pytest.approx(divergence, abs=1e-9)


def test_an_unknown_estimator_is_refused() -> None:
    with pytest.raises(BadInput, match="got estimator 'k2'; expected k1, abs, mse or k3"):
        kl(LOGP, REF, "k2")  # type: ignore[arg-type]
