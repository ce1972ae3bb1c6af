"""VADE's weights. The samplers of the core are tested with the tracker."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from contrib.samplers.vade import vade
from memory.errors import BadInput
from policies.rl.protocols import PromptStats
from policies.rl.tracker import BetaTracker


def known(rates: list[float], evidence: list[float]) -> PromptStats:
    return PromptStats(np.array(rates), np.ones(len(rates), dtype=np.bool_), np.array(evidence, dtype=np.float64))


def test_prompts_come_by_the_expected_gain_of_a_step() -> None:
    """By hand: Beta(2, 6) has 2 x 6 x 7 / (8 x 9 x 10), Beta(.5, .5) has .5 x .5 x 1.5 / (1 x 2 x 3)."""
    assert vade(known([0.25, 0.5], [8, 1])) == pytest.approx([84 / 720, 0.0625], abs=1e-6)


@pytest.mark.parametrize(("rate", "evidence"), [(0.1, 4.0), (0.7, 12.0)])
def test_the_gain_is_the_mean_over_the_posterior(rate: float, evidence: float) -> None:
    posterior = stats.beta(rate * evidence, (1 - rate) * evidence)
    mean, _ = integrate.quad(lambda p: p * (1 - p) ** 2 * posterior.pdf(p), 0, 1)
    assert vade(known([rate], [evidence])) == pytest.approx([mean], rel=1e-5)


def test_an_easy_prompt_of_which_little_is_known_comes_more_often_than_one_that_is_surely_easy() -> None:
    little, much, endless = vade(known([0.95] * 3, [2, 200, 1e9]))
    assert little > much > endless
    assert endless == pytest.approx(0.95 * 0.05**2, rel=1e-6)


def test_the_tracker_tells_how_much_it_knows() -> None:
    tracker = BetaTracker()
    tracker.start("seen", 3, 8)
    found = tracker.stats(["seen", "new"])
    assert found.evidence is not None
    assert found.evidence.tolist() == pytest.approx([8, 1])
    with pytest.raises(BadInput, match="stats without `evidence`"):
        vade(PromptStats(np.array([0.5]), np.array([True])))
