"""Several comparisons at once: Holm's step-down rule (1979, "A simple sequentially rejective multiple test procedure").

It keeps the chance of any false rejection at most alpha, whatever the dependence between the comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memory.records import Frozen

ALPHA = 0.05


class Bounded(Frozen):
    """What was shown about one comparison."""

    low: float
    """Lower bound at the level at which it was decided."""
    level: float
    """One-sided level of that bound."""
    shown: bool
    """Whether the bound reaches the margin."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values, in the order given: each is at most alpha iff Holm's rule rejects at alpha."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    adjusted, least = [1.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = least
    return adjusted


def reach(lower: Mapping[str, Callable[[float], float]], margin: float, alpha: float = ALPHA) -> dict[str, Bounded]:
    """Return for each comparison whether its one-sided lower bound reaches `margin`, by Holm's rule.

    `lower` gives a bound for a one-sided level; it may only rise with the level. The comparisons that reach the margin
    at alpha / m are decided and leave; the others are asked again at the level that the fewer leave, until none leaves.
    """
    left, decided = dict(lower), dict[str, Bounded]()
    while left:
        level = alpha / len(left)
        asked = {name: bound(level) for name, bound in left.items()}
        reached = {name for name, low in asked.items() if low >= margin}
        for name in reached or asked:
            decided[name] = Bounded(low=asked[name], level=level, shown=name in reached)
        left = {name: bound for name, bound in left.items() if name not in decided}
    return {name: decided[name] for name in lower}
