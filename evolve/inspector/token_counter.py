"""A policy that is never asked: it tells which prompts the configured one reads, and counts tokens as it does.

The page must not load a model to count words. Where the model's `tokenizer.json` is at hand it is used, by itself;
else tokens are estimated, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from evolve.config.model import ModelSection
from evolve.generations.workspace_registry import has_generations, model_directory, profile_of
from policies.errors import PolicyRefused
from policies.protocols import Message, Profile, Reply, SamplingParams
from policies.tokens import estimate_tokens


class TokenCounter:
    """Stands where a policy is wanted for its profile and its tokenizer."""

    supports_schema = False
    version = ""

    def __init__(self, section: ModelSection) -> None:
        self.name = section.name
        known = has_generations(section)
        self.profile: Profile = profile_of(section) if known else section.profile
        """What the configuration says; a policy of one's own may read the other."""
        file = model_directory(section) / "tokenizer.json" if known else None
        self._count = _counting(file) if file is not None and file.exists() else estimate_tokens
        self.exact = self._count is not estimate_tokens

    def count_tokens(self, text: str) -> int:
        """Return the tokens of a text; `exact` says whether they are the model's own."""
        return self._count(text)

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Raise `PolicyRefused`."""
        raise PolicyRefused(f"the page does not ask {self.name!r}; run tasks with `evolve run`")

    async def aclose(self) -> None:
        """Hold nothing."""


@lru_cache(maxsize=4)
def _counting(file: Path) -> Callable[[str], int]:
    try:
        from tokenizers import Tokenizer
    except ImportError:  # the `pocket` extra is not installed
        return estimate_tokens
    tokenizer = Tokenizer.from_file(str(file))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
