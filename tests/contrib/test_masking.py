"""Masked importance sampling."""

from __future__ import annotations

import math

import pytest
import torch

from contrib.corrections.masking import Masking
from memory.errors import BadInput
from tests.policies.rl.test_tis import MASK, OLD, ROLLOUT


def test_tokens_whose_ratio_is_out_of_bounds_are_left_out() -> None:
    """verl's `test_mask_mode`: ratios .368 and 1.649 within .5 to 2."""
    likelier, rarer = Masking("token", low=0.5, high=2.0)(OLD, ROLLOUT, MASK).tolist()
    assert likelier == [0, 0, 0]
    assert rarer == pytest.approx([math.exp(0.5), math.exp(0.5), 0])


def test_a_row_is_left_out_by_the_product_of_its_ratios() -> None:
    """e^-3 and e; the bounds of TRL keep both, a bound of 2 neither the second nor, from .5 on, the first."""
    likelier, rarer = Masking()(OLD, ROLLOUT, MASK).tolist()
    assert likelier == pytest.approx([math.exp(-3)] * 3)
    assert rarer == pytest.approx([math.e, math.e, 0])
    assert not Masking(low=0.5, high=2.0)(OLD, ROLLOUT, MASK).any()


def test_one_token_can_cost_its_row_but_only_itself_at_the_level_of_tokens() -> None:
    old, rollout = torch.zeros(1, 3), torch.tensor([[0.0, -2.0, 0.0]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    assert Masking("token")(old, rollout, mask).tolist() == [[1, 0, 1]]
    assert Masking("sequence")(old, rollout, mask).tolist() == [[0, 0, 0]]


def test_the_same_policy_weighs_1_whatever_was_not_drawn_and_no_gradient_flows() -> None:
    old, rollout = OLD.clone().requires_grad_(), OLD.clone()
    rollout[1, 2] = math.nan
    for level in ("token", "sequence"):
        weights = Masking(level)(old, rollout, MASK)  # type: ignore[arg-type]
        assert weights.tolist() == [[1, 1, 1], [1, 1, 0]]
        assert not weights.requires_grad


def test_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadInput, match="0 <= low < high"):
        Masking(low=3.0)
    with pytest.raises(BadInput, match="got level='row'"):
        Masking("row")  # type: ignore[arg-type]
