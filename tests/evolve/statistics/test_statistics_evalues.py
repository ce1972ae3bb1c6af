"""Bets are fair where they must be, so stopping at any time keeps the error; and they find what helps.

E1  expected wealth is exactly 1 when showing the item changes nothing, however tasks differ, and below 1 when it harms
E2  wealth that is watched all the time reaches 1/alpha in at most alpha of the streams without an effect; a test that
    was not made for it does not keep that
E3  an item that helps is found; one that harms is found by the opposite bet
E4  the lower bound of a mean holds at any distribution
"""

from __future__ import annotations

from itertools import product
from math import prod, sqrt
from random import Random

import pytest

from benchmarks.gate_trials import Live, stream
from evolve.statistics.evalues import Exposure, first_reached, mean_bound, wealth

Rates = tuple[tuple[float, float], ...]


def expected_wealth(rates: Rates, probability: float, *, harm: bool = False) -> float:
    """Return the exact expectation after all tasks; `rates` has (shown, hidden) for each task."""
    total = 0.0
    for outcome in product((False, True), repeat=2 * len(rates)):
        pairs = list(zip(outcome[::2], outcome[1::2], strict=True))
        exposures = [
            Exposure(task_id=f"t{at}", hidden=hidden, probability=probability, passed=passed, stratum=str(at % 2))
            for at, (hidden, passed) in enumerate(pairs)
        ]
        chances = [
            (probability if hidden else 1 - probability) * (rate[hidden] if passed else 1 - rate[hidden])
            for rate, (hidden, passed) in zip(rates, pairs, strict=True)
        ]
        total += prod(chances) * wealth(exposures, harm=harm)[-1]
    return total


@pytest.mark.parametrize("probability", [0.25, 0.1])
@pytest.mark.parametrize("harm", [False, True])
def test_e1_bets_are_fair_without_an_effect(probability: float, harm: bool) -> None:
    rates = ((0.5, 0.5), (0.9, 0.9), (0.1, 0.1), (1.0, 1.0), (0.3, 0.3))
    assert expected_wealth(rates, probability, harm=harm) == pytest.approx(1, abs=1e-12)


def test_e1_bets_lose_where_the_item_harms_and_win_where_it_helps() -> None:
    harms: Rates = ((0.4, 0.5), (0.9, 0.95), (0.0, 0.3), (0.2, 0.2))
    assert expected_wealth(harms, 0.25) < 1 < expected_wealth(harms, 0.25, harm=True)
    helps: Rates = tuple((shown, hidden) for hidden, shown in harms)
    assert expected_wealth(helps, 0.25, harm=True) < 1 < expected_wealth(helps, 0.25)


USELESS = Live(shown=(0.9, 0.5, 0.2), hidden=(0.9, 0.5, 0.2))
HELPS = Live(shown=(0.8, 0.6), hidden=(0.4, 0.2))


def naive_p(exposures: tuple[Exposure, ...]) -> float:
    """Return z of the usual two-sample test."""
    arms = [[bool(e.passed) for e in exposures if e.hidden is hidden] for hidden in (False, True)]
    if min(map(len, arms)) < 5:
        return 0.0
    shown, hidden = (sum(arm) / len(arm) for arm in arms)
    rate = sum(map(sum, arms)) / len(exposures)
    spread = sqrt(rate * (1 - rate) * (1 / len(arms[0]) + 1 / len(arms[1])))
    return (shown - hidden) / spread if spread else 0.0


def test_e2_watching_all_the_time_keeps_the_error() -> None:
    rng, streams, length = Random(2), 400, 150
    ours = naive = 0
    for _ in range(streams):
        exposures = stream(rng, USELESS, length)
        ours += first_reached(wealth(exposures), 20) is not None
        naive += any(naive_p(exposures[:at]) > 1.645 for at in range(10, length, 10))
    assert ours / streams <= 0.05
    assert naive / streams > 0.1


def test_e3_what_helps_is_found_and_what_harms_too() -> None:
    rng = Random(3)
    streams = [stream(rng, HELPS, 250) for _ in range(60)]
    found = [first_reached(wealth(each), 20) for each in streams]
    assert sum(at is not None for at in found) / len(found) > 0.9
    assert sum(first_reached(wealth(each, harm=True), 20) is None for each in streams) == len(streams)
    harmful = [stream(rng, Live(shown=HELPS.hidden, hidden=HELPS.shown), 250) for _ in range(60)]
    assert sum(first_reached(wealth(each, harm=True), 20) is not None for each in harmful) / len(harmful) > 0.9


def test_e3_knowing_the_kind_of_task_helps() -> None:
    rng = Random(5)
    mixed = Live(shown=(1.0, 0.5), hidden=(0.8, 0.1))
    streams = [stream(rng, mixed, 200) for _ in range(60)]
    blind = [tuple(e.model_copy(update={"stratum": ""}) for e in each) for each in streams]
    by_kind, without = ([wealth(each)[-1] > 20 for each in group] for group in (streams, blind))
    assert sum(by_kind) > sum(without)


def test_e3_what_matters_in_few_kinds_of_tasks_is_found() -> None:
    """A rule that decides two kinds of tasks of twelve: looking at all kinds alike finds far fewer."""
    rng = Random(7)
    few = Live(shown=(0.8,) * 12, hidden=(0.0,) * 2 + (0.8,) * 10, probability=0.2)
    streams = [stream(rng, few, 300) for _ in range(40)]
    blind = [tuple(e.model_copy(update={"stratum": ""}) for e in each) for each in streams]
    by_kind, without = ([max(wealth(each)) >= 20 for each in group] for group in (streams, blind))
    assert sum(by_kind) >= 20 > 12 > sum(without)


def test_wealth_depends_on_the_past_alone() -> None:
    exposures = stream(Random(1), HELPS, 60)
    assert wealth(exposures)[:40] == wealth(exposures[:40])
    assert wealth(()) == []
    missing = tuple(e.model_copy(update={"passed": None if not e.passed else True}) for e in exposures)
    assert wealth(missing) == wealth(exposures)


def test_wealth_has_a_ceiling() -> None:
    certain = Live(shown=(1.0,), hidden=(0.0,))
    last = wealth(stream(Random(1), certain, 3000))[-1]
    assert 1e90 < last < float("inf")


def test_e4_the_bound_of_a_mean() -> None:
    assert mean_bound([1.0] * 7, 0.05) > 0 > mean_bound([1.0] * 6, 0.05)
    assert mean_bound([0.0] * 50, 0.05) < 0
    assert mean_bound([0.25] * 60, 0.05) == pytest.approx(0.17, abs=0.03)
    assert mean_bound([0.5, -0.5, 1.0] * 9, 0.05) == pytest.approx(mean_bound([1.0, 0.5, -0.5] * 9, 0.05))


def test_e4_it_rarely_lies_above_the_mean() -> None:
    rng, trials = Random(6), 250
    draws = [[rng.choice((1.0, 1.0, -1.0, -1.0, 0.0)) for _ in range(25)] for _ in range(trials)]
    assert sum(mean_bound(values, 0.05) > 0 for values in draws) / trials <= 0.05
    rare = [[-1.0 if rng.random() < 0.05 else 0.05 / 0.95 for _ in range(25)] for _ in range(trials)]
    assert sum(mean_bound(values, 0.05) > 0 for values in rare) == 0
    good = [[rng.choice((1.0, 1.0, 1.0, -1.0, 0.0)) for _ in range(60)] for _ in range(100)]
    assert sum(mean_bound(values, 0.05) > 0 for values in good) > 50
