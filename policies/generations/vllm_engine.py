"""vLLM over HTTP: adapters are loaded and unloaded while it runs, ids go in and ids with log-probabilities come back.

`load_inplace` stays false, and every version has a name of its own: a name that is used again answers from the old
version's cached keys and values (vllm#42125). Several replicas are one engine: a version is loaded on all that can be
reached, or on none, and a request that one of them does not answer goes to the next.
The server must allow loading at run time (`evolve policy serve` starts one so), on loopback or behind a proxy.

A server is asked for no more at once than it answers at once: what waits in its queue would wait against the clock of
its request, and be given up. What is late all the same is asked for once more, and no further: an answer that takes too
long would take so again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

from memory.errors import BadInput
from policies.errors import PolicyRefused, PolicyUnavailable, TimedOut
from policies.generations.engine import Sampled
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.generations.replicas import Replicas, chosen
from policies.generations.whole_model import require_adapter
from policies.openai_transport import NoSuchRoute
from policies.protocols import SamplingParams
from policies.server_settings import TIMEOUT_S

log = logging.getLogger(__name__)

UNCUT = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""vLLM takes what a request leaves out from the model's generation_config.json; then what it tells is of another policy
than the one that is trained."""
SLOTS = 256
"""Requests at once of a server that does not say how many it answers: what vLLM answers by itself on most GPUs."""


class VllmEngine:
    """One or more vLLM servers of the same base model, which they serve as `model`, or under a name of their own.

    One that cannot be reached is left out for a while, and gets what the others serve before it is in use again
    (`Replicas`). Every method raises `PolicyUnavailable` only where none can be reached; the error names them all.
    `sample` raises `TimedOut` where servers that can be reached took too long twice.
    `slots`: requests that each of them answers at once, None = they are asked; `timeout_s`: seconds that one answer may
    take from when it is sent.
    """

    def __init__(
        self,
        urls: Sequence[str],
        model: str,
        *,
        api_key: str | None = None,
        slots: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Connect to nothing yet. `urls` end in /v1. Raises `BadInput` for none, or for one that is no http(s) URL."""
        if not urls:
            raise BadInput("got no server; give the URL of at least one vLLM, e.g. http://127.0.0.1:8000/v1")
        self._replicas = Replicas(urls, api_key, timeout_s)
        self.urls = self._replicas.urls
        self.model = model
        self._under_way = [0] * len(self.urls)
        """Requests of each replica that are sent or wait."""
        self._slots = slots
        self._free: list[asyncio.Semaphore] = []
        self._sized: tuple[asyncio.AbstractEventLoop, int] | None = None

    async def load(self, version: str, path: Path) -> None:
        """Load on every replica in use; where one of them refuses, the others forget it again.

        One that cannot be reached is left out, and gets it later; at least one must have it. Raises `AdapterRefused`.
        """
        require_adapter(path)
        there = await self._replicas.adapters()
        root = str(path.resolve())
        if taken := next((on[version] for on in there.values() if on.get(version, root) != root), None):
            raise AdapterRefused(
                f"{version} is served from {taken!r}, got {root!r}; a name is never used for two adapters: stop that "
                "server, or use one of your own"
            )
        wanting = [at for at, on in there.items() if version not in on]
        failed = await self._replicas.load(version, root, wanting)
        if refused := [why for why in failed.values() if not isinstance(why, PolicyUnavailable)]:
            await self._replicas.unload(version, [at for at in wanting if at not in failed])
            raise refused[0]
        if len(failed) == len(there):
            raise self._replicas.none_left(failed)

    async def unload(self, version: str) -> None:
        """Unload on every replica in use that has it.

        One that cannot be reached does not keep the others from it. It may have the version still when it is back.
        """
        there = await self._replicas.adapters()
        having = [at for at, on in there.items() if version in on]
        failed = await self._replicas.unload(version, having)
        if not having:
            raise UnknownGeneration(f"no server has {version}; nothing to unload")
        refused = [why for why in failed.values() if not isinstance(why, PolicyUnavailable)]
        if refused or len(failed) == len(having):
            raise next(iter(refused or failed.values()))

    async def loaded(self) -> frozenset[str]:
        """Return the versions that every replica in use serves."""
        there = await self._replicas.adapters()
        return frozenset.intersection(*map(frozenset[str], there.values()))

    async def context(self) -> int:
        """Return the smallest context of the replicas that were reached so far."""
        if not self._replicas.lengths:
            await self._replicas.adapters()
        if not self._replicas.lengths:
            raise PolicyRefused(f"{self.urls[0]} does not say how long a prompt may be; expected a vLLM server")
        return min(self._replicas.lengths.values())

    async def slots(self) -> int:
        """Return how many requests each replica answers at once; while none can be asked, what most would answer."""
        if self._slots is not None:
            return self._slots
        told = await asyncio.gather(*map(self._replicas.told_slots, await self._replicas.usable()))
        slots = min(filter(None, told), default=SLOTS)
        if set(told) - {None}:
            self._slots = slots
        return slots

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        """Sample at the replica that `replicas` chooses. A log-probability that it could not compute is no number."""
        body: dict[str, Any] = {
            "prompt": list(prompt),
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "logprobs": 0,
            "return_token_ids": True,
            **UNCUT,
        }
        body |= {"stop": list(params.stop)} if params.stop else {}
        body |= {"seed": params.seed} if params.seed is not None else {}
        choice = await self._complete(prompt, body, version)
        try:
            ids = tuple(choice["token_ids"])
            logprobs = tuple(nan if each is None else float(each) for each in choice["logprobs"]["token_logprobs"])
        except (LookupError, TypeError, ValueError) as error:
            raise self._not_vllm("token_ids with logprobs") from error
        if len(ids) != len(logprobs) or tuple(choice.get("prompt_token_ids") or prompt) != tuple(prompt):
            raise self._not_vllm("the prompt as it was sent, with one log-probability for each token")
        return Sampled(ids, logprobs, str(choice.get("finish_reason") or "stop"))

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        await self._replicas.aclose()

    async def _complete(self, prompt: Sequence[int], body: dict[str, Any], version: str | None) -> dict[str, Any]:
        """Ask one replica after another until one answers: not one that is dead, nor one that lacks the version."""
        free = await self._free_slots()
        failed: dict[int, BaseException] = {}
        late: TimedOut | None = None
        while usable := await self._replicas.usable(failed):
            urls, loads = [self.urls[at] for at in usable], [self._under_way[at] for at in usable]
            at = usable[chosen(urls, loads, prompt, version)]
            self._under_way[at] += 1
            try:
                async with free[at]:
                    if self._replicas.is_out(at):  # it was left out while this request waited
                        continue
                    name = version or await self._replicas.base(at, self.model)
                    data = await self._replicas.call(at, "/completions", {"model": name, **body})
            except TimedOut as slow:
                if late:
                    raise
                log.warning("%s; asked once more", slow)
                late = slow
                if len(usable) > 1:  # another may be faster
                    failed[at] = slow
            except PolicyUnavailable as gone:
                failed[at] = gone
                self._replicas.leave_out(at, gone, due=True)
            except NoSuchRoute as unknown:
                if version is None:
                    raise
                failed[at] = unknown
            else:
                for lacking in (each for each, why in failed.items() if isinstance(why, NoSuchRoute)):
                    self._replicas.leave_out(lacking, failed[lacking], due=True)  # what this one serves is loaded there
                return self._choice(data)
            finally:
                self._under_way[at] -= 1
        if unknown := next((why for why in failed.values() if isinstance(why, NoSuchRoute)), None):
            raise UnknownGeneration(f"{version} is not loaded ({unknown}); load it, or ask for the live one")
        raise late or self._replicas.none_left(failed)

    def _choice(self, data: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(data["choices"][0])
        except (LookupError, TypeError, ValueError) as error:
            raise self._not_vllm("choices") from error

    async def _free_slots(self) -> list[asyncio.Semaphore]:
        """Return what lets requests of the running event loop through, for each replica."""
        slots = await self.slots()
        sized = asyncio.get_running_loop(), slots
        if self._sized != sized:
            self._free, self._sized = [asyncio.Semaphore(slots) for _ in self.urls], sized
        return self._free

    def _not_vllm(self, wanted: str) -> PolicyRefused:
        return PolicyRefused(f"{self.urls[0]} answered without {wanted}; expected a vLLM server of a recent version")

    def __repr__(self) -> str:
        return f"VllmEngine(urls={self.urls!r}, model={self.model!r})"
