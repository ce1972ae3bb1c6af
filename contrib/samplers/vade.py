"""VADE: prompts come by what their group is expected to teach, as far as their rate is known at all."""

from __future__ import annotations

from memory.errors import BadInput
from policies.rl.protocols import Array, PromptStats

__all__ = ["vade"]


def vade(stats: PromptStats) -> Array:
    """w = E[p (1 - p)^2] = a b (b + 1) / (c (c + 1) (c + 2)), p ~ Beta(a, b): a = v c, b = (1 - v) c, c = a + b.

    v is the estimated rate, c (`PromptStats.evidence`) the rollouts that it counts for.
    Assumption: a step on a group gains p (1 - p)^2, most where one in three attempts succeeds, and little evidence
    means that p may be there although v is not.
    Source: VADE, arXiv 2511.18902, from its abstract and descriptions. Deviations: it draws p from the posterior and
    takes the prompts of the highest score; here prompts are drawn in proportion to the expected score, so that the draw
    is the caller's and a training can be repeated. Its two rates of forgetting are not known; the tracker forgets.
    Raises `BadInput` for stats without `evidence`.
    """
    if stats.evidence is None:
        raise BadInput("got stats without `evidence`; vade expects a + b of each prompt, as a tracker tells")
    c = stats.evidence
    a, b = stats.rates * c, (1 - stats.rates) * c
    return a * b * (b + 1) / (c * (c + 1) * (c + 2))
