"""Guards stop what has collapsed, by the figures alone, and nothing that merely learns."""

from __future__ import annotations

import math

import pytest

from evolve.config.training import TrainingLimits
from evolve.training.guards import GUARDS, collapse, sound

WELL = {"written": 100.0, "valid": 0.9, "entropy": 0.4, "rollout_kl": 1e-6, "skill_use": 0.5}
LIMITS = TrainingLimits(patience=3)
COLLAPSED = {
    "max_growth": ("written", 600.0),
    "min_valid": ("valid", 0.4),
    "min_entropy": ("entropy", 1e-5),
    "max_entropy": ("entropy", 4.0),
    "max_kl": ("rollout_kl", 0.3),
    "min_skill_use": ("skill_use", 0.0),
}


def after(last: list[dict[str, float]], start: int = 6) -> list[dict[str, float]]:
    return [WELL] * start + [WELL | each for each in last]


@pytest.mark.parametrize("limit", COLLAPSED)
def test_each_figure_beyond_its_limit_for_the_patience_stops_and_is_named(limit: str) -> None:
    figure, value = COLLAPSED[limit]
    bad = {figure: value}
    (guard,) = [each for each in GUARDS if each.limit == limit]
    reason = collapse(after([bad] * 3), LIMITS)
    assert guard.says in reason
    assert f"train.limits.{guard.limit}" in reason
    assert f"{value:.3g}" in reason
    assert not collapse(after([bad] * 2), LIMITS), "patience"
    assert not collapse(after([bad, bad, {}, bad, bad]), LIMITS), "on end"
    assert not sound(after([bad]), LIMITS)
    assert collapse(after([{figure: math.nan}] * 3), LIMITS), "what is no number is no good"


def test_learning_is_no_collapse() -> None:
    better = [WELL | {"written": 100.0 + 15 * n, "entropy": 0.4 / (n + 1), "success": n / 20} for n in range(12)]
    assert not any(collapse(better[:n], LIMITS) for n in range(1, 13))
    assert all(sound(better[:n], LIMITS) for n in range(1, 13))


def test_a_start_that_is_bad_is_what_later_is_compared_with_and_figures_may_be_missing() -> None:
    weak = {"written": 10.0, "valid": 0.0, "skill_use": 0.0}
    assert not collapse([weak] * 9, LIMITS)
    assert sound([weak] * 9, LIMITS)
    assert collapse([weak] * 3 + [weak | {"written": 51.0}] * 3, LIMITS)


def test_a_limit_can_be_taken_away() -> None:
    none = {name: math.inf if name.startswith("max") else 0.0 for name in COLLAPSED}
    for figure, value in COLLAPSED.values():
        assert not collapse(after([{figure: value}] * 3), TrainingLimits(patience=3, **none))
