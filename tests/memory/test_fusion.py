"""Rank fusion, diversity and budget on numbers small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.fusion import diversify, ranks, reciprocal_ranks, within_budget
from memory.protocols import Vector

EYE = np.eye(4, dtype=np.float32)


def test_ranks_share_the_better_place_on_ties() -> None:
    assert ranks(np.array([3.0, 5.0, 3.0, 1.0])).tolist() == [2, 1, 2, 4]
    assert ranks(np.array([np.nan, 7.0])).tolist()[1] == 1
    assert np.isnan(ranks(np.array([np.nan, 7.0]))[0])


def test_fusion_is_the_published_sum() -> None:
    a_and_b, b_and_c, a = ([9.0, 1.0, np.nan], [np.nan, 0.2, 0.1], [1.0, np.nan, np.nan])
    fused = reciprocal_ranks([(np.array(a_and_b), 1.0), (np.array(b_and_c), 1.0), (np.array(a), 0.5)])
    assert fused.tolist() == pytest.approx([1 / 61 + 0.5 / 61, 1 / 62 + 1 / 61, 1 / 62])


@given(st.lists(st.integers(-50, 50), max_size=20))
def test_only_the_order_of_a_side_counts(scores: list[int]) -> None:
    plain, moved = np.array(scores, dtype=float), np.array([value**3 - 7.0 for value in scores], dtype=float)
    assert reciprocal_ranks([(plain, 1.0)]).tolist() == reciprocal_ranks([(moved, 1.0)]).tolist()


def test_without_diversity_order_is_relevance_and_ties_keep_their_place() -> None:
    assert diversify(np.array([0.2, 0.9, 0.2, 0.5]), EYE, k=4, trade=1.0) == [1, 3, 0, 2]


def test_a_near_copy_waits_behind_something_new() -> None:
    vectors = np.stack([EYE[0], EYE[0], EYE[1]])
    relevance = np.array([1.0, 0.95, 0.5])
    assert diversify(relevance, vectors, k=3, trade=1.0) == [0, 1, 2]
    assert diversify(relevance, vectors, k=3, trade=0.5) == [0, 2, 1]


def by_the_book(relevance: list[float], vectors: Vector, k: int, trade: float) -> list[int]:
    """Maximal marginal relevance as its paper writes it, one candidate at a time."""
    low, high = min(relevance), max(relevance)
    scaled = [(each - low) / (high - low) if high > low else 1.0 for each in relevance]
    cosines = [[round(float(np.float32(a @ b)), 6) for b in vectors] for a in vectors]
    taken: list[int] = []
    while len(taken) < min(k, len(relevance)):
        left = [at for at in range(len(relevance)) if at not in taken]
        worth = {
            at: trade * scaled[at] - (1 - trade) * max([0.0, *(cosines[at][other] for other in taken)]) for at in left
        }
        taken.append(max(left, key=lambda at: (worth[at], -at)))
    return taken


@pytest.mark.parametrize("trade", [0.0, 0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_diversity_is_that_of_the_paper(trade: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = np.abs(rng.normal(size=(9, 4)))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    relevance = rng.normal(size=9) * 10 - 3
    assert diversify(relevance, vectors, k=6, trade=trade) == by_the_book(relevance.tolist(), vectors, 6, trade)


def test_diversity_of_nothing_and_of_equals() -> None:
    assert diversify(np.array([]), np.zeros((0, 4), dtype=np.float32), k=3, trade=0.5) == []
    assert diversify(np.array([1.0, 1.0]), EYE[:2], k=5, trade=0.7) == [0, 1]
    assert diversify(np.array([1.0, 1.0]), EYE[:2], k=0, trade=0.7) == []


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 200))
def test_budget_is_hard_and_keeps_order(tokens: list[int], budget: int) -> None:
    kept = within_budget(tokens, budget)
    assert kept == sorted(set(kept))
    total = sum(tokens[i] for i in kept)
    assert total <= budget
    assert all(total + tokens[i] > budget for i in set(range(len(tokens))) - set(kept))


def test_no_budget_keeps_all_and_a_big_item_does_not_block_small_ones() -> None:
    assert within_budget([5, 5], None) == [0, 1]
    assert within_budget([100, 4, 3], 7) == [1, 2]
