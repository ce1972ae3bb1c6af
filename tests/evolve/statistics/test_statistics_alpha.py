"""The level of the next look: it earns back, it never overspends, and a good change is still seen at the 20th look.

L1  all that was spent is at most alpha * max(1, accepted), whatever happened
L2  power for +8 points at n = 200 is above 75 % at the first look
L3  and above 50 % at the 20th look after 5 acceptances, wherever they lie
L4  the share of useless changes among the accepted stays below alpha
L5  a past that cannot have followed the rule is refused
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gate_trials import power
from evolve.statistics.alpha import ALPHA, Look, level, share
from memory.errors import BadInput


def looks(accepted: set[int], last: int) -> list[Look]:
    """Return looks 1 to `last`, of which those in `accepted` were accepted with certainty."""
    return [Look(p=0.0 if t in accepted else 1.0, accepted=t in accepted) for t in range(1, last + 1)]


def test_the_shares_are_all_of_it() -> None:
    head = sum(share(t) for t in range(1, 20_001))
    assert head < 1 < head + 1.01 * share(20_000) * 20_000
    assert all(share(t) > share(t + 1) for t in range(1, 100))


@given(st.lists(st.booleans(), max_size=60))
def test_l1_never_more_is_spent_than_was_earned(accepted: list[bool]) -> None:
    past = [Look(p=0.0, accepted=each) for each in accepted]
    spent = sum(level(past[:t]) for t in range(len(past) + 1))
    assert spent <= ALPHA * max(1, sum(accepted)) + 1e-12


def test_l2_the_first_look_sees_eight_points() -> None:
    assert level([]) == pytest.approx(0.0220, abs=1e-4)
    assert power(level([])) == pytest.approx(0.772, abs=0.001)


def test_l3_so_does_the_20th_wherever_the_five_acceptances_lie() -> None:
    worst = min(
        ALPHA * (share(20) + sum(share(20 - tau) for tau in five[1:])) for five in combinations(range(1, 20), 5)
    )
    assert worst == level(looks({1, 2, 3, 4, 5}, 19))
    assert power(worst) == pytest.approx(0.536, abs=0.001)
    assert power(level(looks({3, 7, 11, 15, 19}, 19))) > 0.8


def test_l3_without_earning_back_it_would_not() -> None:
    assert power(level(looks(set(), 19))) < 0.4


def test_l4_false_discoveries_stay_rare() -> None:
    rng, found = Random(4), []
    for _ in range(150):
        past: list[Look] = []
        useless = 0
        for _ in range(40):
            works = rng.random() < 0.3
            p = rng.random() ** (8 if works else 1)
            allowed = level(past)
            past.append(Look(p=p, accepted=p <= allowed))
            useless += p <= allowed and not works
        found.append(useless / max(1, sum(look.accepted for look in past)))
    assert 0.005 < sum(found) / len(found) < ALPHA


def test_a_veto_earns_nothing_and_breaks_nothing() -> None:
    assert level([Look(p=0.0, accepted=False)]) == level([Look(p=1.0, accepted=False)]) < level([])


def test_l5_a_past_of_another_rule_is_refused() -> None:
    with pytest.raises(BadInput, match="look 2 was accepted"):
        level([Look(p=0.01, accepted=True), Look(p=0.02, accepted=True)])
    assert level([Look(p=0.01, accepted=True), Look(p=0.013, accepted=True)]) > level(looks({1}, 2))


def test_a_past_acceptance_is_held_to_the_level_of_its_own_time() -> None:
    first = Look(p=0.02, accepted=True, level=level([]))
    assert level([first], 0.02) == pytest.approx(0.02 * share(2)), "today's alpha decides the next level alone"
    with pytest.raises(BadInput, match=r"look 1 was accepted with p = 0\.02 at a level of 0\.0044"):
        level([Look(p=0.02, accepted=True)], 0.02)
    with pytest.raises(BadInput, match=r"look 1 was accepted with p = 0.02 at a level of 0\.01 "):
        level([Look(p=0.02, accepted=True, level=0.01)])


def test_a_look_of_unknown_level_is_written_as_before_there_was_one() -> None:
    assert Look(p=0.5, accepted=False).model_dump(mode="json") == {"p": 0.5, "accepted": False}
    known = Look(p=0.5, accepted=True, level=0.6)
    assert Look.model_validate_json(known.model_dump_json()) == known
