"""The live generation, or one that is named, as a policy: one version answers a request from its beginning to its end.

Promotion and rollback move an alias in the registry, and only new requests see that. A version that is no longer live
stays loaded while it answers, and as long as a rollback would go to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

from policies.encoding import ChatEncoder
from policies.errors import PolicyError
from policies.generations.engine import AdapterEngine
from policies.generations.errors import UnknownGeneration
from policies.generations.generation_records import Generation
from policies.generations.generation_registry import Registry
from policies.generations.server_check import CanaryReport
from policies.generations.swap import Inspection, kept, swap
from policies.generations.token_policy import TokenPolicy
from policies.protocols import Message, Profile, Reply, SamplingParams

log = logging.getLogger(__name__)


class RoutedPolicy(TokenPolicy):
    """Asks the generation that is live when a request begins, or always the one that is `named`. It closes the engine
    and the registry.

    Other processes may move the alias, or unload a version that this one still asks for: such a request is made once
    more, of what is live then. A server that was started anew gets the version loaded when it is first asked for.
    """

    def __init__(
        self,
        registry: Registry,
        engine: AdapterEngine,
        encoder: ChatEncoder,
        *,
        name: str = "served",
        profile: Profile = "full",
        named: str | None = None,
    ) -> None:
        super().__init__(engine, encoder, name=name, profile=profile)
        self.registry = registry
        self._named = named
        self.in_flight: Counter[str] = Counter()
        """Requests that each version is answering."""
        self._moving = asyncio.Lock()

    @property
    def version(self) -> str:
        """The generation that a request made now would be answered by."""
        return self._answering().version

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return one completion of that generation, told in `policy_version`. Raises as `TokenPolicy`."""
        try:
            return await self._asked(self._answering(), messages, params)
        except UnknownGeneration:
            wanted = self._answering()
            if wanted.adapter is not None:
                async with self._moving:  # one of the requests that find it gone loads it
                    await self.engine.load(wanted.version, wanted.adapter)
            return await self._asked(wanted, messages, params)

    async def swap(self, version: str, inspection: Inspection) -> CanaryReport:
        """Check, load, canary, promote; then unload what nobody needs. Raises as `policies.generations.swap.swap`."""
        async with self._moving:
            report = await swap(self.registry, self.engine, version, inspection)
        await self.sweep()
        return report

    async def rollback(self, reason: str = "") -> Generation:
        """Let the previous generation answer again. It is loaded still, so the server is not asked."""
        restored = self.registry.rollback(reason)
        await self.sweep()
        return restored

    async def sweep(self) -> frozenset[str]:
        """Unload retired versions that answer nothing and that no rollback goes to; return them.

        A server that cannot be reached is logged: the next sweep tries again.
        """
        async with self._moving:
            try:
                loaded = await self.engine.loaded()
                retired = {g.version for g in self.registry.generations() if g.state == "retired"}
                idle = sorted((loaded & retired) - self._kept() - set(+self.in_flight))
                for version in idle:
                    await self.engine.unload(version)
            except PolicyError as error:
                log.warning("could not unload what is no longer live: %s", error)
                return frozenset()
        return frozenset(idle)

    async def aclose(self) -> None:
        """Close the engine and the registry."""
        await super().aclose()
        self.registry.close()

    def _answering(self) -> Generation:
        return self.registry.live() if self._named is None else self.registry.get(self._named)

    def _kept(self) -> frozenset[str]:
        """Return the versions that stay loaded though they answer nothing now."""
        return kept(self.registry) | ({self._named} if self._named else set())

    async def _asked(self, generation: Generation, messages: Sequence[Message], params: SamplingParams) -> Reply:
        version = generation.version
        self.in_flight[version] += 1
        try:
            return await self.answer(messages, params, None if generation.adapter is None else version, version)
        finally:
            self.in_flight[version] -= 1
            if not self.in_flight[version] and not self._moving.locked() and version not in self._kept():
                await self.sweep()
