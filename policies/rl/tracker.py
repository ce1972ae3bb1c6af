"""Expected reward of a prompt: a Beta distribution per prompt that forgets faster the more the policy moved.

    v = a / (a + b)        rho = clip(2^(-D / 0.06), 0.875, 0.96)        a <- rho a + r        b <- rho b + 1 - r

D is the mean |difference of log-probabilities| on the prompt's previous response, 0 where there is none.
Source: Single-stream policy optimisation, arXiv 2509.13232, with the constants of the released code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memory.errors import BadInput
from policies.rl.protocols import PromptStats

HALF_LIFE = 0.06
"""Drift D that would halve the memory."""
LEAST_KEPT, MOST_KEPT = 0.875, 0.96
PRIOR_WEIGHT = 1 / (1 - LEAST_KEPT)
"""Rollouts that the first estimate counts for: the memory at the fastest forgetting."""


class BetaTracker:
    """Expected reward of prompts. They are named by a task's id: the text of a prompt changes with every library."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, float]] = {}

    def start(self, prompt: str, successes: float, attempts: int) -> None:
        """Set a prompt's estimate from rollouts made before training: a = 8 (S + .5) / (n + 1), b from the failures."""
        if not 0 <= successes <= attempts:
            raise BadInput(f"got {successes} successes of {attempts} attempts; expected 0 <= successes <= attempts")
        if attempts:
            share = (successes + 0.5) / (attempts + 1)
            self._counts[prompt] = (PRIOR_WEIGHT * share, PRIOR_WEIGHT * (1 - share))

    def counts(self, prompt: str) -> tuple[float, float]:
        """Return (a, b); (0.5, 0.5) for a prompt of which nothing is known."""
        return self._counts.get(prompt, (0.5, 0.5))

    def value(self, prompt: str) -> float:
        """Return v in (0, 1). As a baseline, ask before `update`."""
        a, b = self.counts(prompt)
        return a / (a + b)

    def update(self, prompt: str, reward: float, drift: float = 0.0, attempts: int = 1) -> None:
        """Learn a reward in [0, 1] after the policy moved by `drift` (D, in nats, not negative).

        Of a group, one set of weights did all `attempts`, `reward` is their sum, and memory fades once: a <- rho a + R,
        b <- rho b + n - R.
        """
        if not 0 <= reward <= attempts:
            raise BadInput(
                f"got reward {reward} for {prompt!r}; expected [0, 1] for each of {attempts} rollouts: track success, "
                "not a shaped reward"
            )
        kept = retention(drift)
        a, b = self.counts(prompt)
        self._counts[prompt] = (kept * a + reward, kept * b + attempts - reward)

    def stats(self, prompts: Sequence[str]) -> PromptStats:
        """Return what samplers and allocators want to know of these prompts."""
        return PromptStats(
            np.array([self.value(prompt) for prompt in prompts], dtype=np.float64),
            np.array([prompt in self._counts for prompt in prompts], dtype=np.bool_),
            np.array([sum(self.counts(prompt)) for prompt in prompts], dtype=np.float64),
        )


def retention(drift: float) -> float:
    """Return rho, the share of the memory that is kept after a drift in nats."""
    if not 0 <= drift < np.inf:
        raise BadInput(f"got drift {drift}; expected a finite mean |difference of log-probabilities|, not negative")
    return float(np.clip(2.0 ** (-drift / HALF_LIFE), LEAST_KEPT, MOST_KEPT))
