"""Every prompt gets the same number of rollouts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memory.errors import BadInput
from policies.rl.protocols import Ints, PromptStats

__all__ = ["Fixed"]


@dataclass(frozen=True)
class Fixed:
    """n_i = budget / p; where that is no whole number, the first prompts get one more.

    Assumption: no prompt is known to be worth more than another.
    Source: group sampling of GRPO, arXiv 2402.03300.
    """

    def allocate(self, stats: PromptStats, budget: int) -> Ints:
        """Return [p] counts that sum to `budget`. Raises `BadInput` for less than one rollout per prompt."""
        prompts = len(stats.rates)
        if not 1 <= prompts <= budget:
            raise BadInput(f"got a budget of {budget} for {prompts} prompts; expected at least one rollout for each")
        each, more = divmod(budget, prompts)
        return each + (np.arange(prompts, dtype=np.int64) < more)
