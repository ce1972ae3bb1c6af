"""Statistics of the ring, against figures that can be worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.claim import Row
from benchmarks.peers.counting import Calls
from benchmarks.peers.figures import Passed, arm_rows, compared, cost_row, difference, rate, time_rows
from benchmarks.peers.ring import Result
from evolve.statistics.paired import interval, p_different


def marks(right: set[int], n: int = 40) -> Passed:
    return {f"t{at}": at in right for at in range(n)}


def result(
    arm: str, *, learned: int = 1, calls: int = 0, failed: int = 0, wall_s: float = 1.0, at_once: int = 1
) -> Result:
    adapt = Calls(calls=calls, failed=failed, wall_s=wall_s, most_at_once=at_once)
    return Result(arm=arm, passed=dict(marks({1, 2})), learned=learned, adapt=adapt)


def test_a_difference_is_paired_by_task() -> None:
    found = difference([marks(set(range(10)))], [marks(set(range(5, 25)))])  # 15 gained, 5 lost
    assert found.points == pytest.approx(100 * 10 / 40)
    assert (found.low, found.high) == pytest.approx(tuple(100 * end for end in interval(15, 5, 40)))
    assert found.p == p_different(15, 5)
    same = difference([marks({1, 2})], [marks({1, 2})])
    assert (same.points, same.p) == (0, 1)
    assert same.low < 0 < same.high


def test_seeds_are_averaged_so_that_a_task_counts_once() -> None:
    base, better = marks(set()), marks(set(range(12)))
    one = difference([base], [better])
    three = difference([base] * 3, [better] * 3)
    assert (one.low, one.high, one.p) == (three.low, three.high, three.p)
    mixed = difference([base, base], [better, base])
    assert mixed.points == pytest.approx(one.points / 2)
    assert mixed.low < one.low
    with pytest.raises(ValueError, match="zip"):
        difference([base], [better, better])


def test_a_rate_is_over_all_seeds() -> None:
    assert rate([marks({1, 2}, 4), marks({1}, 4)]) == pytest.approx(100 * 3 / 8)


def row(rows: list[Row], words: str) -> Row:
    (found,) = (each for each in rows if words in each.claim)
    return found


def test_the_target_is_about_the_lower_end_of_the_interval() -> None:
    from benchmarks.claim import at_least

    few, many = [marks(set())], [marks(set(range(3)))]
    found = compared("ours minus theirs", few, many, at_least(0))
    assert row(found, "points").ok is None
    assert row(found, "lower end").ok is (difference(few, many).low >= 0)
    assert row(compared("x", few, [marks(set(range(30)))], at_least(0)), "lower end").ok is True
    assert row(compared("x", [marks(set(range(30)))], few, at_least(0)), "lower end").ok is False


def test_cost_is_beside_the_cheapest_peer_that_learned_in_every_seed() -> None:
    arms = {
        "ours": [result("ours", calls=400)],
        "dear": [result("dear", calls=900)],
        "cheap": [result("cheap", calls=390, failed=20)],  # what failed was asked for too
        "idle": [result("idle", calls=200, learned=0)],
    }
    found = cost_row(arms, "ours", ["dear", "cheap", "idle"])
    assert (found.measured, found.ok) == (-10, True)
    assert "(cheap)" in found.claim
    arms["ours"] = [result("ours", calls=500)]
    assert cost_row(arms, "ours", ["dear", "cheap", "idle"]).ok is False
    nobody = cost_row(arms, "ours", ["idle"])
    assert (nobody.measured, nobody.ok) == (300, None)
    assert "none learned anything (idle)" in nobody.claim
    assert cost_row(arms, "ours", []).ok is False


def test_time_has_a_target_against_sequential_peers_alone() -> None:
    arms = {
        "ours": [result("ours", wall_s=100, at_once=4)],
        "slow": [result("slow", wall_s=350)],
        "quick": [result("quick", wall_s=250)],
        "parallel": [result("parallel", wall_s=120, at_once=8)],
    }
    found = time_rows(arms, "ours", ["slow", "quick", "parallel"])
    assert [(each.measured, each.ok) for each in found] == [(3.5, True), (2.5, False), (1.2, None)]
    assert "8 at once" in found[2].claim


def test_times_of_two_machines_are_not_compared() -> None:
    slow = result("slow", wall_s=350).model_copy(update={"machine": "a larger one"})
    (found,) = time_rows({"ours": [result("ours", wall_s=100)], "slow": [slow]}, "ours", ["slow"])
    assert (found.measured, found.ok) == (None, False)
    assert "another machine" in found.claim


def test_times_of_an_arm_that_shared_the_server_are_not_compared() -> None:
    shared = result("slow", wall_s=350)
    shared = shared.model_copy(update={"adapt": shared.adapt.model_copy(update={"shared": True})})
    (found,) = time_rows({"ours": [result("ours", wall_s=100)], "slow": [shared]}, "ours", ["slow"])
    assert (found.measured, found.ok) == (None, False)
    assert "the server was shared" in found.claim


def test_the_table_names_every_arm_and_what_it_used() -> None:
    found = arm_rows({"ours": [result("ours", calls=4, failed=1)]}, n=40)
    assert row(found, "solved").measured == pytest.approx(5.0)
    assert row(found, "ours: calls to adapt").measured == 5
    assert all(each.ok is None for each in found)
