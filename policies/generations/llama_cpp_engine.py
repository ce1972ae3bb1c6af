"""llama.cpp behind the contract of an engine, for sampling: a base in GGUF, and one adapter at a time beside it.

llama.cpp takes adapters when it starts, so a new version is a new process: the former one ends, the adapter is
converted (`gguf_adapter`), and the next one starts. What is told of a token is how likely it was when it was sampled,
after temperature and top-p. Keys and values are float16, and a base may be quantised, so that it computes something
else than the trainer does: `rollout_kl` tells how much, and a correction (`train.correction = "tis"`) weighs it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from policies.errors import PolicyRefused, PolicyUnavailable, TimedOut
from policies.generations.adapters import fingerprint
from policies.generations.engine import Sampled
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.generations.gguf_adapter import to_gguf
from policies.llama_server import LlamaOptions, check, llama_server
from policies.protocols import SamplingParams
from policies.server_settings import TIMEOUT_S

UNCUT = {"top_k": 0, "min_p": 0.0, "samplers": ["temperature", "top_p"]}
"""llama.cpp leaves out unlikely tokens unless told otherwise; then what it tells is not what was sampled from."""


class LlamaCppEngine:
    """A process of llama.cpp of its own, started with the first version. Loading another version forgets it."""

    def __init__(self, base: Path, folder: Path, options: LlamaOptions, timeout_s: float = TIMEOUT_S) -> None:
        """Take the base in GGUF, and a folder for converted adapters and for what the server prints.

        Raises `BadInput` as `llama_server.check`.
        """
        check(base, options)
        folder.mkdir(parents=True, exist_ok=True)
        self._base, self._folder, self._options, self._timeout_s = base, folder, options, timeout_s
        self._serving, self._url = ExitStack(), ""
        self._version, self._path = "", Path()
        self._free = asyncio.Semaphore(options.slots)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def load(self, version: str, path: Path) -> None:
        """Serve an adapter, in place of another; again where the server is gone."""
        path = path.resolve()
        if version == self._version and path != self._path:
            raise AdapterRefused(f"{version} is served from {str(self._path)!r}, got {str(path)!r}; give another name")
        if version == self._version and await self._answers():
            return
        await asyncio.to_thread(self._serve, version, path)

    def _serve(self, version: str, path: Path) -> None:
        self._stop()
        made = self._folder / f"{fingerprint(path)[:12]}.gguf"
        for other in self._folder.glob("*.gguf"):
            if other != made:
                other.unlink()
        if not made.exists():
            to_gguf(path, self._base, made)
        options = self._options.model_copy(update={"adapter": made})
        serving = llama_server(self._base, log=self._folder / "llama.log", name=self._base.stem, options=options)
        self._url = self._serving.enter_context(serving).removesuffix("/v1")
        self._version, self._path = version, path

    async def unload(self, version: str) -> None:
        """End the server of a version."""
        self._require(version)
        await asyncio.to_thread(self._stop)

    async def loaded(self) -> frozenset[str]:
        """Return the version that is served, or none."""
        return frozenset({self._version} - {""})

    async def context(self) -> int:
        """Return how many tokens prompt and completion may have together."""
        return self._options.context

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        """Sample on a free slot. `version` None is the base, beside the adapter that is served."""
        if version is not None or not self._version:
            self._require(version or "the base")
        body = {
            "prompt": list(prompt),
            "n_predict": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "lora": [{"id": 0, "scale": 0.0 if version is None else 1.0}],
            "n_probs": 1,
            "post_sampling_probs": True,
            "return_tokens": True,
            **UNCUT,
        }
        body |= {"stop": list(params.stop)} if params.stop else {}
        body |= {"seed": params.seed} if params.seed is not None else {}
        async with self._slot():
            told = await self._post("/completion", body)
        try:
            ids = tuple(int(each) for each in told["tokens"])
            logprobs = _aligned(
                ids, [(int(each["id"]), float(each["prob"])) for each in told["completion_probabilities"]]
            )
        except (LookupError, TypeError, ValueError) as error:
            raise PolicyRefused(
                f"llama.cpp answered without tokens and their probabilities ({sorted(told)}); xllamacpp 2026.10 does"
            ) from error
        cut = told.get("stop_type") == "limit"
        return Sampled(ids, logprobs, "length" if cut else "stop")

    async def aclose(self) -> None:
        """End the server."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._version, self._url = "", ""
        self._serving.close()

    def _require(self, version: str) -> None:
        if version != self._version:
            served = self._version or "none"
            raise UnknownGeneration(f"{version} is not loaded on llama.cpp ({served} is); load it")

    def _slot(self) -> asyncio.Semaphore:
        """Return what lets as many requests of the running event loop through as there are slots."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._free, self._loop = asyncio.Semaphore(self._options.slots), loop
        return self._free

    async def _answers(self) -> bool:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=self._timeout_s) as client:
                return (await client.get(f"{self._url}/health")).is_success
        except httpx.HTTPError:
            return False

    async def _post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=self._timeout_s) as client:
                answer = await client.post(self._url + route, json=body)
        except httpx.HTTPError as error:
            if isinstance(error, httpx.ReadTimeout) and await self._answers():
                raise TimedOut(
                    f"llama.cpp gave no answer within {self._timeout_s:g} s; raise policy.timeout_s, or sample fewer "
                    "tokens"
                ) from None
            raise PolicyUnavailable(
                f"llama.cpp gave no answer ({type(error).__name__}); {self._folder / 'llama.log'} says why"
            ) from None
        if not answer.is_success:
            raise PolicyRefused(f"llama.cpp refused a request (HTTP {answer.status_code}: {answer.text[:300]})")
        return answer.json()

    def __repr__(self) -> str:
        return f"LlamaCppEngine({str(self._base)!r}, version={self._version!r})"


def _aligned(ids: Sequence[int], told: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """Return the log-probability of each id, not a number where llama.cpp tells none: it leaves out tokens that end in
    the middle of a character, and those of the stop string that was met. Raises `ValueError` for other ids."""
    names = [token for token, _ in told]
    first, last = _places(ids, names), [len(ids) - 1 - at for at in _places(ids[::-1], names[::-1])][::-1]
    found = [math.nan] * len(ids)
    for one, other, (_, chance) in zip(first, last, told, strict=True):
        if one == other and chance > 0:
            found[one] = math.log(chance)
    return tuple(found)


def _places(ids: Sequence[int], names: Sequence[int]) -> list[int]:
    """Return where each name stands in the ids at the earliest, one after another."""
    places, at = list[int](), 0
    for name in names:
        places.append(ids.index(name, at))
        at = places[-1] + 1
    return places
