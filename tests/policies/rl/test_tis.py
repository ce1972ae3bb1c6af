"""Truncated importance sampling."""

from __future__ import annotations

import math

import pytest
import torch

from memory.errors import BadInput
from policies.rl.corrections.tis import Tis

OLD = torch.full((2, 3), -2.0, dtype=torch.float64)
ROLLOUT = torch.tensor([[-1.0, -1.0, -1.0], [-2.5, -2.5, -2.5]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_each_token_is_weighed_by_its_own_ratio() -> None:
    likelier, rarer = Tis()(OLD, ROLLOUT, MASK).tolist()
    assert likelier == pytest.approx([math.exp(-1)] * 3)
    assert rarer == pytest.approx([math.exp(0.5), math.exp(0.5), 0])
    assert [round(likelier[0], 3), round(rarer[0], 3)] == [0.368, 1.649]


def test_each_row_is_weighed_by_the_product_of_its_ratios() -> None:
    likelier, rarer = Tis(level="sequence")(OLD, ROLLOUT, MASK).tolist()
    assert likelier == pytest.approx([math.exp(-3)] * 3)
    assert rarer == pytest.approx([math.e, math.e, 0])


@pytest.mark.parametrize(("level", "expected"), [("token", 1.5), ("sequence", 1.5)])
def test_no_weight_is_above_the_cap(level: str, expected: float) -> None:
    weights = Tis(level=level, cap=1.5)(OLD, ROLLOUT, MASK)  # type: ignore[arg-type]
    assert weights.max().item() == expected


def test_the_same_policy_weighs_1_and_no_gradient_flows() -> None:
    old = OLD.clone().requires_grad_()
    weights = Tis()(old, OLD, MASK)
    assert weights.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert not weights.requires_grad


def test_what_was_not_drawn_may_be_no_number() -> None:
    rollout = ROLLOUT.clone()
    rollout[1, 2] = math.nan
    for level in ("token", "sequence"):
        assert Tis(level=level)(OLD, rollout, MASK).isfinite().all()  # type: ignore[arg-type]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match="expected 'token' or 'sequence', and a cap above 0"):
        Tis(cap=0)
    with pytest.raises(BadInput, match="got level='row'"):
        Tis(level="row")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="expected one shape"):
        Tis()(OLD, ROLLOUT[:, :2], MASK)
