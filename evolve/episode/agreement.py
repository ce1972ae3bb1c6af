"""Agreement among attempts (self-consistency, arXiv 2203.11171): where nobody grades, what several samples came to.

Samples that are right come to the same end more often than samples that are wrong, since there are many ways to be
wrong. Pure: from episodes alone, and never from their outcomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memory.records import StopReason, Trajectory

DIGITS = 6
"""Significant digits to which two numbers have to be the same."""


def end_of(trajectory: Trajectory) -> str | None:
    """Return what an episode came to: its last observation, a number by its value; None where it came to no end."""
    if not trajectory.steps or trajectory.stop is not StopReason.DONE or trajectory.steps[-1].error is not None:
        return None
    said = trajectory.steps[-1].observation.strip()
    try:
        return f"{float(said.replace(',', '')):.{DIGITS}g}"
    except ValueError:
        return " ".join(said.split()) or None


def agreed(attempts: Sequence[Trajectory]) -> str | None:
    """Return the end that at least half of the attempts came to, and no other end as often; None without one.

    One attempt alone agrees with nobody.
    """
    ends = Counter(end for end in map(end_of, attempts) if end is not None).most_common(2)
    if not ends or ends[0][1] < 2 or 2 * ends[0][1] < len(attempts):
        return None
    return None if len(ends) > 1 and ends[1][1] == ends[0][1] else ends[0][0]
