"""Token losses become one number."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import BadInput
from policies.rl.protocols import Aggregation
from policies.rl.trainer import WAYS, aggregate, token_weights

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
