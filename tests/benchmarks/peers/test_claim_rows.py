"""The table of claim real_4, from made-up results: what decides is computed."""

from __future__ import annotations

from benchmarks.claim import Row
from benchmarks.claims.real_4_peers import rows
from benchmarks.peers.counting import Calls
from benchmarks.peers.ours import ARMS, FRUGAL
from benchmarks.peers.ring import BARE, TOLD, Result


def result(arm: str, right: int, *, calls: int, wall_s: float, at_once: int = 1) -> Result:
    passed = {f"t{at}": at < right for at in range(100)}
    adapt = Calls(calls=calls, wall_s=wall_s, most_at_once=at_once)
    return Result(arm=arm, passed=passed, again=passed, learned=1, adapt=adapt)


def table(without: int = 20, **peers: Result) -> dict[str, Row]:
    own = {arm: [result(arm, without, calls=500, wall_s=100, at_once=4)] for arm in (BARE, TOLD, *ARMS)}
    own[FRUGAL] = [result(FRUGAL, 60, calls=400, wall_s=100, at_once=4)]
    return {row.claim: row for row in rows({**own, **{name: [each] for name, each in peers.items()}}, ["ace: nowhere"])}


def test_better_cheaper_and_faster_than_every_peer_is_ok() -> None:
    found = table(
        kayba=result("kayba", 30, calls=3000, wall_s=900, at_once=3),
        gepa=result("gepa", 25, calls=620, wall_s=200, at_once=8),
        langchain=result("langchain", 22, calls=440, wall_s=400),
    )
    targets = {claim: row.ok for claim, row in found.items() if row.target}
    assert len(targets) == 7  # the prompt alone, three peers, all ran, calls, one of them sequential
    assert all(targets.values())
    assert found["not run: ace: nowhere"].ok is None
    assert found["frugal minus bare prompt, read generously, points"].measured == 40
    assert found["frugal again minus frugal (A/A), points"].measured == 0


def test_ours_without_memory_may_not_be_worse_than_the_best_bare_prompt() -> None:
    row = "without memory minus the bare prompt that says which modules there are, read generously: points"
    for without, met in ((18, True), (17, False)):
        own = {arm: [result(arm, 20 if arm == TOLD else without, calls=1, wall_s=1)] for arm in (BARE, TOLD, *ARMS)}
        (found,) = (each for each in rows(own, []) if each.claim == row)
        assert found.ok is met


def test_one_peer_as_good_cheap_or_fast_is_enough_to_miss_it() -> None:
    worse = {
        "gepa": result("gepa", 25, calls=620, wall_s=400),
        "langchain": result("langchain", 22, calls=440, wall_s=400),
    }
    better = table(kayba=result("kayba", 58, calls=3000, wall_s=900), **worse)
    assert [claim for claim, row in better.items() if row.ok is False] == [
        "frugal above kayba and above itself without memory: the lower of both lower ends"
    ]
    alike = table(without=60, kayba=result("kayba", 20, calls=3000, wall_s=900), **worse)
    missed = {claim.split()[2] for claim, row in alike.items() if row.ok is False}
    assert missed == {"kayba", "gepa", "langchain"}  # better than every peer, and so it is without memory
    cheap = table(kayba=result("kayba", 20, calls=300, wall_s=900), **worse)
    assert [row.measured for row in cheap.values() if row.ok is False] == [100]
    fast = table(kayba=result("kayba", 20, calls=3000, wall_s=250), **worse)
    assert [row.measured for row in fast.values() if row.ok is False] == [2.5]
    gone = table(**worse)
    assert [row.measured for row in gone.values() if row.ok is False] == [2]
