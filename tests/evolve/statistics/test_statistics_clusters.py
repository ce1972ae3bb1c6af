"""Several deployments and several comparisons: golden values of scipy and statsmodels, repeats, and cover.

scipy 1.17.1: `ttest_1samp([0.10, 0.06, -0.02, 0.08, 0.03], 0)` with `.confidence_interval`, `binomtest(9, 12)`.
statsmodels 0.14: `multipletests(p, method="holm")`.
"""

from __future__ import annotations

from random import Random

import pytest

from evolve.statistics.clusters import Pairing, bounds, compare, pairing, t_interval, t_test
from evolve.statistics.holm import holm, reach
from evolve.statistics.paired import interval, p_different
from memory.errors import BadInput

FIVE = (0.10, 0.06, -0.02, 0.08, 0.03)
T_P = 0.07568771625454714
T_95 = (-0.00823920385580306, 0.10823920385580307)
T_90 = (0.0052820045511501185, 0.09471799544884986)


def world(name: str, gained: int, lost: int, n: int = 50, seed: int = 0) -> Pairing:
    """Return a pairing whose first tasks were gained and whose last were lost."""
    ids = [f"t{at}" for at in range(n)]
    return Pairing(world=name, seed=seed, n=n, gained=tuple(ids[:gained]), lost=tuple(ids[n - lost :]))


def test_the_t_interval_and_test_are_those_of_scipy() -> None:
    assert t_test(FIVE) == pytest.approx(T_P, abs=1e-12)
    assert t_interval(FIVE) == pytest.approx(T_95, abs=1e-12)
    assert t_interval(FIVE, 0.9) == pytest.approx(T_90, abs=1e-12)


def test_holm_is_that_of_statsmodels() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_one_deployment_has_tangos_interval_and_mcnemars_p() -> None:
    found = compare([world("0", 9, 3)])
    assert (found.n, found.gained, found.lost, found.clusters) == (50, 9, 3, (0.12,))
    assert (found.low, found.high) == pytest.approx(interval(9, 3, 50))
    assert found.p == found.p_mcnemar == pytest.approx(0.14599609375)
    assert found.method == "Tango's score"


def test_several_deployments_are_the_clusters() -> None:
    worlds = [world(str(at), 5 + round(100 * delta), 5, 100) for at, delta in enumerate(FIVE)]
    found = compare(worlds)
    assert found.clusters == pytest.approx(FIVE)
    assert (found.delta, found.low) == pytest.approx((0.05, min(T_95[0], interval(50, 25, 500)[0])))
    assert found.p_mcnemar == p_different(50, 25) < found.p == pytest.approx(T_P)
    assert "5 deployments" in found.method


def test_deployments_that_agree_by_chance_are_no_proof_of_precision() -> None:
    found = compare([world(str(at), 0, 0) for at in range(3)])
    assert found.delta == 0.0
    assert (found.low, found.high) == pytest.approx(interval(0, 0, 150))
    assert found.high > 0.02
    assert found.p == 1.0


def test_repeating_the_same_lives_adds_no_evidence() -> None:
    """A deterministic policy gives the same marks with every seed: interval and p stay those of one seed."""
    once, thrice = compare([world("0", 9, 3)]), compare([world("0", 9, 3, seed=seed) for seed in range(3)])
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high))
    assert thrice.p_mcnemar == once.p_mcnemar
    assert (thrice.n, thrice.gained) == (150, 27)


def test_with_one_deployment_the_seeds_are_the_clusters() -> None:
    found = compare([world("0", 9, 3, seed=0), world("0", 3, 3, seed=1)])
    assert found.clusters == (0.12, 0.0)
    assert "2 seeds" in found.method
    assert (found.low, found.high) == (pytest.approx(0.06 - 0.06 * 12.706204736), pytest.approx(0.06 + 0.7623722842))


def test_a_missing_mark_is_a_failure_on_either_side() -> None:
    cohort = ("a", "b", "c", "d")
    found = pairing("0", 0, cohort, {"a": None, "b": True, "c": True}, {"a": True, "b": None, "c": True, "d": None})
    assert (found.gained, found.lost, found.n) == (("a",), ("b",), 4)


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing to compare"):
        compare([])
    with pytest.raises(BadInput, match="2 tasks, 1 different"):
        pairing("0", 0, ("a", "a"), {}, {})


def test_the_interval_covers_the_truth_where_deployments_differ() -> None:
    """Five deployments of 60 tasks, each with a true difference of its own around 4 points (sd 6 points)."""
    random, covered, trials, naive = Random(5), 0, 300, 0
    for _ in range(trials):
        worlds: list[Pairing] = []
        for name in "abcde":
            up = min(max(random.gauss(0.14, 0.06), 0.0), 0.9)
            gained = sum(random.random() < up for _ in range(60))
            lost = sum(random.random() < 0.1 for _ in range(60 - gained))
            worlds.append(world(name, gained, lost, 60))
        truth = 0.14 - 0.1 * 0.86
        low, high = bounds(worlds, 0.95)
        covered += low <= truth <= high
        pooled = interval(sum(len(w.gained) for w in worlds), sum(len(w.lost) for w in worlds), 300)
        naive += pooled[0] <= truth <= pooled[1]
    assert covered >= 0.93 * trials
    assert naive < covered


def test_margins_are_reached_step_by_step() -> None:
    """`far` alone is sure enough at alpha / 3, `near` at alpha / 2, `never` at no level."""
    lower = {
        "near": lambda level: -0.02 if level >= 0.025 else -0.04,
        "never": lambda level: -0.3,
        "far": lambda level: 0.01,
    }
    found = reach(lower, -0.03)
    assert {name: each.shown for name, each in found.items()} == {"near": True, "never": False, "far": True}
    assert [round(found[name].level, 4) for name in ("far", "near", "never")] == [0.0167, 0.025, 0.05]
    assert list(found) == list(lower)
