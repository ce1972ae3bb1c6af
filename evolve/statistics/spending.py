"""Alpha spending over many looks at the same change: each spends a part of the error that is left to it.

A change may wrongly be accepted with a chance of `error` at most, in all stages of all looks that it is ever part of,
alone or with others. A stage is tested at a part of what is left, and what its boundary really costs is drawn: the
chance that a fair coin reaches it in as many throws as tasks came further or less far. Where too few did, nothing can
be accepted, and nothing is drawn. Alpha spending (Lan and DeMets 1983, "Discrete sequential boundaries for clinical
trials", Biometrika 70), with the error of discrete boundaries carried on and no gain from their correlation.

Why it holds: if a change does nothing, the signs of a look are fair coins whatever the number of flips and all looks
before. The levels of a look depend on these numbers alone, never on the signs, so the costs of all stages bound the
chance of acceptance, and they sum to less than `error`.
"""

from __future__ import annotations

from evolve.statistics.paired import minimum_wins, p_better

SHARE = 1 / 2
"""Part of what is left that a stage may spend."""


def stages(tasks: int, first: int) -> tuple[int, ...]:
    """Return how many tasks each stage of a practical look has run when it ends."""
    sizes = [first]
    while 2 * sizes[-1] < tasks:
        sizes.append(2 * sizes[-1])
    return (*[size for size in sizes if size < tasks], tasks)


def level_of(left: float) -> float:
    """Return the largest p-value that is accepted now."""
    return left * SHARE


def after(left: float, flipped: int) -> float:
    """Return what is left after a stage in which `flipped` tasks came further or less far."""
    wins = minimum_wins(flipped, level_of(left))
    return left if wins is None else left - p_better(wins, flipped - wins)
