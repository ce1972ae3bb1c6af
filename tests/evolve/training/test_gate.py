"""The gate of generations: what it accepts by gains and losses, and that nothing it has not accepted is promoted."""

from __future__ import annotations

import pytest

from evolve.statistics.paired import Paired
from evolve.training.promotion_gate import WITH, WITHOUT, decided


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
        ((4, 0), (0, 0), False),
        ((0, 5), (40, 0), False),
        ((1, 3), (40, 0), True),
    ],
    ids=["no change", "both better", "p = 0.03", "p = 0.06", "the playbook serves no more", "a loss within chance"],
)
def test_a_gain_in_all_and_no_clear_loss_in_either_arm(
    with_it: tuple[int, int], without_it: tuple[int, int], accepted: bool
) -> None:
    passes, reason = decided({WITH: arm(*with_it), WITHOUT: arm(*without_it)})
    assert passes is accepted
    assert "gained" in reason
