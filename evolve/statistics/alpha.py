"""Significance level of the next look: LORD++, an online rule that earns back when something is accepted.

Ramdas, Yang, Wainwright and Jordan (2017), "Online control of the false discovery rate with decaying memory"
(arXiv 1710.00499), with all of the wealth at hand from the start (W0 = alpha):

    level(t) = alpha * (g(t) + sum over the acceptances tau_2 < tau_3 < ... < t of g(t - tau_k)),   sum of all g = 1

The first acceptance pays nothing, since W0 was the whole alpha. What holds at every time, whatever the number of looks:
- the levels spent sum to at most alpha * max(1, accepted), from which, for p-values that are valid given the looks
  before: E[false acceptances] <= alpha * E[max(1, acceptances)] (the modified FDR), and FDR <= alpha if the p-values of
  useless changes are independent besides;
- while everything is useless, the chance of accepting anything at all is at most alpha (weak FWER). FWER is not
  controlled otherwise.
A veto (a p-value below the level that is not accepted) only lowers what is spent and keeps all of this.

What it does not repair: "given the looks before" needs fresh runs of both arms at each look. The same tasks looked at
again and again are learned by heart, whatever the level; that is what counting looks and refreshing the split are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from memory.errors import BadInput
from memory.records import Frozen

ALPHA = 0.1
"""A change of +8 points (12 % gained, 4 % lost, n = 200) is accepted with chance 0.77 at the first look, and with 0.53
or more at the 20th, wherever five acceptances lie before it. 0.05 reaches that with no g that was tried: the best,
t^-1.6, has 0.77 and 0.62 on average over the places, and 0.37 where the five came first."""
_SHIFT = 3
_TOTAL = pi * pi / 6 - sum(1 / (k * k) for k in range(1, _SHIFT + 1))


class Look(Frozen):
    """One decision of the past."""

    p: float
    accepted: bool
    level: float | None = None
    """What p had to reach; None in what was journalled before levels were kept."""

    @model_serializer(mode="wrap")
    def _as_journalled(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave an unknown level out: an old decision that is made again is the same to the last bit."""
        return {name: value for name, value in dumped(self).items() if value is not None}


def share(t: int) -> float:
    """Return g(t) = (t + 3)^-2 / total, t >= 1: what is spent t looks after an acceptance. They sum to 1."""
    return 1 / ((t + _SHIFT) * (t + _SHIFT) * _TOTAL)


def level(past: Sequence[Look], alpha: float = ALPHA) -> float:
    """Return the level of the next look, from all looks before it in order.

    `alpha` decides the next level alone; it may have been another one before. Raises `BadInput` if the past cannot have
    followed this rule: an acceptance above the level of its time. Where that is not known, it is that of today's alpha.
    """
    accepted: list[int] = []
    for t, look in enumerate(past, 1):
        if not look.accepted:
            continue
        if look.p > (allowed := _level(t, accepted, alpha) if look.level is None else look.level):
            raise BadInput(
                f"look {t} was accepted with p = {look.p!r} at a level of {allowed!r} (alpha {alpha!r}); "
                "give the looks of one rule, all and in order"
            )
        accepted.append(t)
    return _level(len(past) + 1, accepted, alpha)


def _level(t: int, accepted: Sequence[int], alpha: float) -> float:
    return alpha * (share(t) + sum(share(t - tau) for tau in accepted[1:]))
