"""Price of tokens: three optional numbers in a policy's settings. No price list is shipped; prices change."""

from __future__ import annotations

from pydantic import Field

from memory.records import Frozen, Usage


class Price(Frozen):
    """US dollars per million tokens."""

    prompt: float = Field(default=0.0, ge=0)
    completion: float = Field(default=0.0, ge=0)
    cached: float | None = Field(default=None, ge=0)
    """Prompt tokens that the provider served from its cache; None = the price of the prompt."""

    def cost(self, usage: Usage) -> float:
        """Return dollars. Cached tokens are a part of the prompt tokens, as every provider counts them."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = usage.prompt_tokens - usage.cached_tokens
        total = fresh * self.prompt + usage.cached_tokens * cached + usage.completion_tokens * self.completion
        return total / 1_000_000
