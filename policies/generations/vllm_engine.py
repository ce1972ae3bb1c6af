"""vLLM over HTTP: adapters are loaded and unloaded while it runs, ids go in and ids with log-probabilities come back.

`load_inplace` stays false, and every version has a name of its own: a name that is used again answers from the old
version's cached keys and values (vllm#42125). Several replicas are one engine: a version is loaded on all or on none.
The server must allow loading at run time (`evolve policy serve` starts one so), on loopback or behind a proxy.

A server is asked for no more at once than it answers at once: what waits in its queue would wait against the clock of
its request, and be given up, and asked for again behind all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import httpx

from memory.errors import BadInput
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.generations.engine import Sampled
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.generations.replicas import chosen
from policies.generations.whole_model import require_adapter
from policies.openai_transport import Connection, NoSuchRoute, Transport
from policies.protocols import SamplingParams
from policies.server_settings import TIMEOUT_S

LOADING_S = 120.0
UNCUT = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""vLLM takes what a request leaves out from the model's generation_config.json; then what it tells is of another policy
than the one that is trained."""
QUOTED = 300
SLOTS = 256
"""Requests at once of a server that does not say how many it answers: what vLLM answers by itself on most GPUs."""


class VllmEngine:
    """One or more vLLM servers of the same base model, which they all serve as `model`.

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
        self.urls = tuple(url.rstrip("/") for url in urls)
        self.model = model
        api_key = (api_key or "").strip()  # as `Transport` takes it
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._replicas = [Transport(Connection(base_url=url, timeout_s=timeout_s), api_key) for url in self.urls]
        self._under_way = [0] * len(self.urls)
        """Requests of each replica that are sent or wait."""
        self._slots = slots
        self._free: list[asyncio.Semaphore] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: int | None = None

    async def load(self, version: str, path: Path) -> None:
        """Load on every replica; where one of them fails, the others forget it again. Raises `AdapterRefused`."""
        require_adapter(path)
        there = await self._adapters()
        root = str(path.resolve())
        if taken := next((on[version] for on in there if on.get(version, root) != root), None):
            raise AdapterRefused(
                f"{version} is served from {taken!r}, got {root!r}; a name is never used for two adapters: stop that "
                "server, or use one of your own"
            )
        body = {"lora_name": version, "lora_path": root, "load_inplace": False}
        wanting = [url for url, on in zip(self.urls, there, strict=True) if version not in on]
        done = await asyncio.gather(*(self._post(url, "load", body) for url in wanting), return_exceptions=True)
        if failures := [result for result in done if isinstance(result, BaseException)]:
            fine = [url for url, result in zip(wanting, done, strict=True) if not isinstance(result, BaseException)]
            undo = (self._post(url, "unload", {"lora_name": version}) for url in fine)
            await asyncio.gather(*undo, return_exceptions=True)
            raise failures[0]

    async def unload(self, version: str) -> None:
        """Unload where it is loaded. A replica that cannot be reached does not keep the others from it."""
        there = await self._adapters()
        having = [url for url, on in zip(self.urls, there, strict=True) if version in on]
        if not having:
            raise UnknownGeneration(f"no server has {version}; nothing to unload")
        body = {"lora_name": version}
        done = await asyncio.gather(*(self._post(url, "unload", body) for url in having), return_exceptions=True)
        if failures := [result for result in done if isinstance(result, BaseException)]:
            raise failures[0]

    async def loaded(self) -> frozenset[str]:
        """Return the versions that every replica serves."""
        there = await self._adapters()
        return frozenset.intersection(*(frozenset(on) for on in there))

    async def context(self) -> int:
        """Return the smallest context of the replicas."""
        if self._context is None:
            cards = [await self._cards(replica) for replica in self._replicas]
            lengths = [int(card["max_model_len"]) for on in cards for card in on if card.get("max_model_len")]
            if not lengths:
                raise PolicyRefused(f"{self.urls[0]} does not say how long a prompt may be; expected a vLLM server")
            self._context = min(lengths)
        return self._context

    async def slots(self) -> int:
        """Return how many requests each replica answers at once."""
        if self._slots is None:
            told = [found for found in await asyncio.gather(*map(self._told_slots, self.urls)) if found]
            self._slots = min(told, default=SLOTS)
        return self._slots

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
        for replica in self._replicas:
            await replica.aclose()

    async def _complete(self, prompt: Sequence[int], body: dict[str, Any], version: str | None) -> dict[str, Any]:
        free = await self._free_slots()
        at = chosen(self.urls, self._under_way, prompt, version)
        self._under_way[at] += 1
        try:
            async with free[at]:
                data = await self._replicas[at].call("/completions", {"model": version or self.model, **body})
        except NoSuchRoute as unknown:
            if version is None:
                raise
            raise UnknownGeneration(f"{version} is not loaded ({unknown}); load it, or ask for the live one") from None
        finally:
            self._under_way[at] -= 1
        try:
            return dict(data["choices"][0])
        except (LookupError, TypeError, ValueError) as error:
            raise self._not_vllm("choices") from error

    async def _free_slots(self) -> list[asyncio.Semaphore]:
        """Return what lets requests of the running event loop through, for each replica."""
        slots, loop = await self.slots(), asyncio.get_running_loop()
        if self._loop is not loop:
            self._free, self._loop = [asyncio.Semaphore(slots) for _ in self.urls], loop
        return self._free

    async def _told_slots(self, url: str) -> int | None:
        """Return what a server says of its slots, None where it says nothing."""
        place = f"{url.removesuffix('/v1')}/server_info"
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=LOADING_S, headers=self._headers) as client:
                told = (await client.get(place, params={"config_format": "json"})).json()
            return int(told["vllm_config"]["scheduler_config"]["max_num_seqs"])
        except (httpx.HTTPError, LookupError, TypeError, ValueError):
            return None

    async def _adapters(self) -> list[dict[str, str]]:
        """Return for every replica the adapters it serves, with where it read them from."""
        cards = [await self._cards(replica) for replica in self._replicas]
        return [{str(card["id"]): str(card.get("root")) for card in on if card.get("parent")} for on in cards]

    async def _cards(self, replica: Transport) -> list[dict[str, Any]]:
        listing = await replica.call("/models")
        return [card for card in listing.get("data") or () if isinstance(card, dict)]

    async def _post(self, url: str, verb: str, body: dict[str, Any]) -> None:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=LOADING_S, headers=self._headers) as client:
                answer = await client.post(f"{url}/{verb}_lora_adapter", json=body)
        except httpx.HTTPError as error:
            raise PolicyUnavailable(
                f"{url} gave no answer to {verb} {body['lora_name']} ({type(error).__name__}); start the server"
            ) from None
        said = " ".join(answer.text.split())[:QUOTED]
        if answer.is_success or "has already been loaded" in said:  # another process was faster
            return
        if answer.status_code in (404, 405) and "lora" not in said.lower():
            raise PolicyRefused(
                f"{url} cannot load adapters while it runs (HTTP {answer.status_code}: {said}); start it with "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora, as `evolve policy serve` does"
            )
        if verb == "unload" and answer.status_code == 404:
            raise UnknownGeneration(f"{url} has no {body['lora_name']} to unload ({said})")
        raise AdapterRefused(f"{url} refused to {verb} {body['lora_name']} (HTTP {answer.status_code}: {said})")

    def _not_vllm(self, wanted: str) -> PolicyRefused:
        return PolicyRefused(f"{self.urls[0]} answered without {wanted}; expected a vLLM server of a recent version")

    def __repr__(self) -> str:
        return f"VllmEngine(urls={self.urls!r}, model={self.model!r})"
