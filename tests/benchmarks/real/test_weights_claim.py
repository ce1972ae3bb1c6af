"""Claim real_6 decides by its figures: which rows say yes of a child that gained, and which of one that forgot."""

from __future__ import annotations

from benchmarks.claims.real_6_weights import rows
from benchmarks.real.weights import Fitted
from evolve.episode.arms import AA, MAIN, NO_MEMORY

FITTED = Fitted(generation="policy-v1", rows=10, tokens=100, seconds=20, peak_mb=1)


def passed(count: int, n: int = 200) -> dict[str, bool | None]:
    return {str(at): at < count for at in range(n)}


def verdicts(child: dict[str, int], *, accepted: bool = True) -> dict[str, bool | None]:
    parent = {NO_MEMORY: passed(60), MAIN: passed(120), AA: passed(120), "again": passed(60), "other": passed(100)}
    after = {arm: passed(count) for arm, count in child.items()}
    return {row.claim: row.ok for row in rows(parent, after, FITTED, accepted)}


def test_a_child_that_gained_and_kept_the_rest_meets_every_target() -> None:
    found = verdicts({NO_MEMORY: 90, MAIN: 117, "other": 95})
    assert set(found.values()) == {True, None}


def test_what_was_lost_misses_its_target() -> None:
    found = verdicts({NO_MEMORY: 62, MAIN: 115, "other": 93}, accepted=False)
    missed = {claim for claim, ok in found.items() if ok is False}
    assert missed == {
        "the same: lower end of the interval",
        "child minus parent, with memory, points",
        "child minus parent, other benchmark, points",
        "candidates that the gate accepted",
    }
