"""A policy around another one: all it says of itself is what the inner one says; subclasses change how it answers."""

from __future__ import annotations

from collections.abc import Sequence

from policies.protocols import Message, Policy, Profile, Reply, SamplingParams


class WrappedPolicy:
    """Hands everything on to `policy`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def version(self) -> str:
        return self.policy.version

    @property
    def profile(self) -> Profile:
        return self.policy.profile

    @property
    def supports_schema(self) -> bool:
        return self.policy.supports_schema

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the inner policy's reply. Raises what it raises."""
        return await self.policy.generate(messages, params)

    def count_tokens(self, text: str) -> int:
        return self.policy.count_tokens(text)

    async def aclose(self) -> None:
        await self.policy.aclose()
