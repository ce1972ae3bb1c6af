"""Two arms on the same tasks: the values of the reference, missing marks, and an interval that covers."""

from __future__ import annotations

from itertools import product
from math import comb, prod

import pytest

from benchmarks.gate_trials import acceptance
from evolve.statistics.paired import interval, minimum_wins, p_better, p_different, pair, power, step
from memory.errors import BadInput

MINIMUM_WINS = "5/5 6/6 7/7 7/8 8/9 9/10 9/11 10/12 10/13 11/14 12/15 12/16 13/17 13/18 14/19 15/20"


def test_minimum_wins_of_the_reference() -> None:
    expected = {int(flipped): int(wins) for wins, flipped in (pair.split("/") for pair in MINIMUM_WINS.split())}
    assert {flipped: minimum_wins(flipped) for flipped in expected} == expected
    assert [minimum_wins(flipped) for flipped in range(5)] == [None] * 5


@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(10, 2, 0.039), (8, 2, 0.109), (7, 2, 0.180), (11, 1, 0.006), (7, 6, 1.0), (0, 0, 1.0)]
)
def test_two_sided_p_values_that_were_published(gained: int, lost: int, p: float) -> None:
    assert p_different(gained, lost) == pytest.approx(p, abs=6e-4)
    assert p_different(lost, gained) == p_different(gained, lost)


def test_one_sided_p_values() -> None:
    assert (p_better(0, 0), p_better(3, 0), p_better(5, 0), p_better(0, 3)) == (1.0, 1 / 8, 1 / 32, 1.0)
    assert p_better(800, 700) < 0.01 < p_better(760, 740)


def cap(won: int, lost: int, n: int) -> bool:
    return won >= 2 and lost <= 0.02 * n


@pytest.mark.parametrize(
    ("n", "gains", "loses", "wins", "mcnemar", "capped"),
    [
        (16, 0.05, 0.05, 0.34, 0.00, 0.09),
        (16, 0.12, 0.04, 0.69, 0.02, 0.32),
        (16, 0.04, 0.10, 0.15, 0.00, 0.03),
        (50, 0.05, 0.05, 0.41, 0.01, 0.19),
        (50, 0.12, 0.04, 0.90, 0.25, 0.39),
        (100, 0.05, 0.05, 0.44, 0.02, 0.10),
        (100, 0.12, 0.04, 0.97, 0.57, 0.24),
        (200, 0.05, 0.05, 0.45, 0.03, 0.03),
        (200, 0.12, 0.04, 1.00, 0.87, 0.10),
    ],
)
def test_the_simulated_table_of_the_reference_is_what_sums_give(
    n: int, gains: float, loses: float, wins: float, mcnemar: float, capped: float
) -> None:
    """4,000 trials and two decimals: up to 0.025 apart."""
    assert acceptance(lambda won, lost: won > lost, n, gains, loses) == pytest.approx(wins, abs=0.025)
    exact = acceptance(lambda won, lost: p_better(won, lost) <= 0.05, n, gains, loses)
    assert exact == pytest.approx(mcnemar, abs=0.025)
    assert acceptance(lambda won, lost: cap(won, lost, n), n, gains, loses) == pytest.approx(capped, abs=0.025)


def test_the_whole_cohort_counts_and_missing_is_failure() -> None:
    base = {"a": True, "b": False, "c": None, "d": True, "stranger": True}
    candidate = {"a": None, "b": True, "c": True, "e": True}
    found = pair(["a", "b", "c", "d", "e", "f"], base, candidate)
    assert (found.n, found.gained, found.lost) == (6, ("b",), ("a", "d"))
    assert found.unproven == ("c", "e")
    assert (found.base_coverage, found.candidate_coverage) == (3 / 6, 3 / 6)
    assert found.delta == -1 / 6


def test_an_outage_of_the_base_is_no_evidence() -> None:
    cohort = [f"t{at}" for at in range(20)]
    found = pair(cohort, dict.fromkeys(cohort), dict.fromkeys(cohort, True))
    assert (found.gained, found.delta, len(found.unproven)) == ((), 0.0, 20)
    assert (step(None, True), step(None, False), step(True, None), step(False, None)) == (0, 0, -1, 0)


@pytest.mark.parametrize("cohort", [[], ["a", "a"]])
def test_a_cohort_names_each_task_once(cohort: list[str]) -> None:
    with pytest.raises(BadInput, match="name each task once"):
        pair(cohort, {}, {})


def test_the_interval_is_the_one_of_the_literature() -> None:
    """1 gained and 7 lost of 21 (Fagerland, Lydersen and Laake 2013, BMC Medical Research Methodology 13:91)."""
    assert interval(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)


def test_the_interval_at_its_ends() -> None:
    assert interval(10, 0, 10)[1] == pytest.approx(1)
    assert interval(0, 10, 10)[0] == pytest.approx(-1)
    low, high = interval(0, 0, 10)
    assert low == pytest.approx(-high)
    assert 0 < high < 0.35
    assert interval(3, 8, 40) == pytest.approx(tuple(-end for end in reversed(interval(8, 3, 40))))


@pytest.mark.parametrize(("gains", "loses"), [(0.05, 0.05), (0.12, 0.04), (0.3, 0.2), (0.5, 0.02)])
def test_the_interval_covers_the_truth(gains: float, loses: float) -> None:
    n = 40
    low_high = {(won, lost): interval(won, lost, n) for won in range(n + 1) for lost in range(n + 1 - won)}
    covered = acceptance(lambda won, lost: inside(low_high[won, lost], gains - loses), n, gains, loses)
    assert 0.93 < covered < 0.985


def inside(ends: tuple[float, float], truth: float) -> bool:
    return ends[0] <= truth <= ends[1]


def test_statistics_are_plain_json_with_the_method_named() -> None:
    found = pair(["a", "b", "c"], dict.fromkeys("abc", False), {"a": True, "b": True}).statistics
    assert (found["gained"], found["n"], found["p_better"]) == (["a", "b"], 3, comb(2, 2) / 4)
    assert "Tango" in found["interval_method"]
    assert found["interval"][0] < found["delta"] < found["interval"][1]


@pytest.mark.parametrize(("loss", "gain", "level"), [(0.3, 0.0, 0.05), (0.2, 0.1, 0.1), (0.5, 0.25, 0.25)])
def test_power_counts_the_outcomes_in_which_the_loss_is_seen(loss: float, gain: float, level: float) -> None:
    n, shares = 6, {-1: loss + gain, 0: 1 - loss - 2 * gain, 1: gain}
    seen = 0.0
    for steps in product(shares, repeat=n):
        if p_better(steps.count(-1), steps.count(1)) <= level:
            seen += prod(shares[step] for step in steps)
    assert power(n, level, loss, gain) == pytest.approx(seen)


def test_power_is_told_of_any_number_of_tasks_and_of_no_impossible_shares() -> None:
    assert 0.99 < power(1100, 0.01, 0.1, 0.02) <= 1.0000001
    for n, loss, gain in ((0, 0.1, 0.0), (10, 0.0, 0.1), (10, 0.5, 0.3), (10, 0.1, -0.1)):
        with pytest.raises(BadInput, match="loss \\+ 2 gain <= 1"):
            power(n, 0.05, loss, gain)
