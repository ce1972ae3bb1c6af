"""The gate of generations: what it accepts by gains and losses, and that nothing it has not accepted is promoted."""

from __future__ import annotations

from math import comb

import pytest

from evolve.statistics.paired import Paired, minimum_wins
from evolve.training.promotion_gate import LEVEL, OLDER, WITH, WITHOUT, GenerationTrial, decided, sees, together


def arm(gained: int, lost: int, n: int = 72) -> Paired:
    return Paired(
        n=n,
        gained=tuple(f"g{at}" for at in range(gained)),
        lost=tuple(f"l{at}" for at in range(lost)),
        unproven=(),
        base_coverage=1.0,
        candidate_coverage=1.0,
    )


@pytest.mark.parametrize(
    ("with_it", "without_it", "accepted"),
    [
        ((0, 0), (0, 0), False),
        ((2, 0), (30, 2), True),
        ((5, 0), (0, 0), True),
        ((4, 0), (4, 0), False),
        ((4, 0), (0, 0), False),
        ((0, 5), (40, 0), False),
        ((1, 3), (40, 0), True),
    ],
    ids=[
        "no change",
        "both better",
        "p = 0.03",
        "the same tasks in both are no two proofs",
        "p = 0.06",
        "the playbook serves no more",
        "a loss within chance",
    ],
)
def test_a_gain_in_all_and_no_clear_loss_in_either_arm(
    with_it: tuple[int, int], without_it: tuple[int, int], accepted: bool
) -> None:
    passes, reason = decided({WITH: arm(*with_it), WITHOUT: arm(*without_it)})
    assert passes is accepted
    assert "gained" in reason


GAINS = {WITH: arm(2, 0), WITHOUT: arm(30, 2)}


@pytest.mark.parametrize(
    ("worlds", "forgets"),
    [
        ([(0, 4)], ""),
        ([(0, 5)], "w0"),
        ([(3, 10)], "w0"),
        ([(9, 4)], ""),
        ([(0, 6), (0, 0)], OLDER),
        ([(0, 4), (4, 0)], ""),
        ([(6, 0), (0, 6)], "w1"),
        ([(1, 3)] * 5, ""),
        ([(0, 2)] * 5, OLDER),
    ],
    ids=[
        "within chance",
        "a clear loss",
        "gains do not hide a loss",
        "better there too",
        "in one of two",
        "each within chance",
        "what one gains does not pay for another",
        "noise in five",
        "a small loss in each",
    ],
)
def test_a_candidate_that_forgets_an_older_world_is_refused(worlds: list[tuple[int, int]], forgets: str) -> None:
    older = together({f"w{at}": arm(*flips) for at, flips in enumerate(worlds)})
    passes, reason = decided(GAINS, older)
    assert passes is not bool(forgets)
    assert reason.startswith(f"it forgets {forgets}: " if forgets else "30 tasks gained")


def test_the_older_worlds_share_one_level() -> None:
    for worlds in (1, 2, 10):
        older = together({f"w{at}": arm(0, 0) for at in range(worlds)})
        assert len(older) == worlds + (worlds > 1)
        refused = [refused_by_chance(each.n, LEVEL / len(older)) for each in older.values()]
        assert sum(refused) <= LEVEL, "harmless candidates are refused no more often than that"


def refused_by_chance(n: int, level: float, flips: float = 0.1) -> float:
    """Return how often chance, which flips as many tasks to the worse as to the better, makes a clear loss."""
    found = 0.0
    for flipped in range(min(n, 200) + 1):
        happens = comb(n, flipped) * flips**flipped * (1 - flips) ** (n - flipped)
        least = minimum_wins(flipped, level)
        found += happens * sum(comb(flipped, k) for k in range(least, flipped + 1)) / 2**flipped if least else 0.0
    return found


def test_a_gate_says_what_it_sees_of_a_loss_and_what_it_did_not_measure() -> None:
    assert sees(arm(0, 0, 24), 1) < 0.1
    assert sees(arm(0, 0, 150), 1) > 0.99
    assert sees(arm(0, 0), 1) > sees(arm(0, 0), 3) > sees(arm(4, 0), 3)
    trial = GenerationTrial(
        live="policy-v0",
        candidate="policy-v1",
        accepted=False,
        reason="it forgets w0",
        arms=GAINS,
        older={"w0": arm(1, 9)},
        missing={"w1": "no such file"},
        obeyed=("t1: rm",),
        look=1,
        playbook_tokens=0,
    )
    assert trial.figures["gate.w0, points"] == pytest.approx(-11.11)
    assert trial.figures["gate.not measured"] == {"w1": "no such file"}
    assert trial.figures["gate.obeyed"] == ("t1: rm",)
    rows = {row["measured"]: row for row in trial.rows()}
    assert rows["w0"]["lost"] == 9
    assert rows["w0"]["sees_10"] == pytest.approx(sees(arm(1, 9), 1), abs=0.01)
    assert rows[WITH]["sees_10"] is None


def test_what_a_stranger_got_done_is_named() -> None:
    passes, reason = decided(GAINS, {}, ("canary-1: apps.files.remove()",))
    assert not passes
    assert "canary-1: apps.files.remove()" in reason
