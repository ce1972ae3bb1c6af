"""Preference learning from pairs of episodes, one right, one wrong: DPO and SimPO as weights of a policy gradient.

    DPO    m = beta ((log pi(w) - log ref(w)) - (log pi(l) - log ref(l)))     Rafailov et al., arXiv 2305.18290, eq. 7
    SimPO  m = beta (log pi(w) / |w| - log pi(l) / |l|) - gamma               Meng et al., arXiv 2405.14734, eq. 6

w was done right, l wrong; log pi is the sum over the |w| tokens that the policy wrote, ref the weights that a training
began from. Both make -log sigmoid(m) small. Its gradient is that of -A log pi with A = beta sigmoid(-m) for w and the
opposite for l, divided by the length for SimPO; so a trainer that takes advantages makes these updates, too. Over
episodes of several turns it is ETO's (arXiv 2403.02502).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.rl.protocols import Array


@dataclass(frozen=True, eq=False)
class Said:
    """How likely the episodes of one side are, pair by pair [p]."""

    logp: Array
    """Under the weights as they are, nats: the sum over the tokens that the policy wrote."""
    reference: Array
    """Under those that the training began from."""
    tokens: Array
    """How many there are."""


@dataclass(frozen=True)
class Preference:
    """How far the right side has to be ahead, and what each side weighs."""

    beta: float
    gamma: float = 0.0
    by_length: bool = False
    """SimPO: per token, and without a reference."""

    def margins(self, right: Said, wrong: Said) -> Array:
        """Return m [p]."""
        return self.beta * (self._score(right) - self._score(wrong)) - self.gamma

    def weights(self, margins: Array, side: Said) -> Array:
        """Return the size of A [p] for each episode of a side; it is positive for the right one."""
        pull = self.beta * sigmoid(-margins)
        return pull / side.tokens if self.by_length else pull

    def _score(self, side: Said) -> Array:
        return side.logp / side.tokens if self.by_length else side.logp - side.reference


PREFERENCES: dict[str, Callable[[float | None, float], Preference]] = {
    "dpo": lambda beta, _: Preference(0.1 if beta is None else beta),
    "simpo": lambda beta, gamma: Preference(2.0 if beta is None else beta, gamma, by_length=True),
}
"""Name -> what makes it of beta (None = as its paper) and gamma."""


def sigmoid(values: Array) -> Array:
    """Return 1 / (1 + e^-x), without an overflow."""
    return np.exp(-np.logaddexp(0.0, -values))


def losses(margins: Array) -> Array:
    """Return -log sigmoid(m)."""
    return np.logaddexp(0.0, -margins)
