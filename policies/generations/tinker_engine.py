"""A service with Tinker's API behind the contract of an engine, for sampling: each version is a place where it keeps
weights, of which a directory says the address."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import json
import logging
import math
import tarfile
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from memory.errors import EvolveError
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.generations.engine import Sampled
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.protocols import SamplingParams

REFERENCE = "tinker.json"
PASSING = ("APIConnectionError", "InternalServerError", "RateLimitError", "ConflictError")
"""Errors of the client after which the same request may be answered."""


class TinkerEngine:
    """What a `ServiceClient` keeps for sampling. `ends` are the ids that end a turn, `context` what the model takes."""

    def __init__(self, service: Any, base_model: str, ends: Collection[int], context: int) -> None:
        self._service, self._base_model, self._ends, self._context = service, base_model, sorted(ends), context
        self._types = client_package().types
        self._known: dict[str | None, tuple[str, Any]] = {}

    async def load(self, version: str, path: Path) -> None:
        """Ask for what a directory refers to (`refer`) under the name `version`."""
        address: str = json.loads((path / REFERENCE).read_text())["address"]
        if version in self._known:
            if self._known[version][0] != address:
                raise AdapterRefused(f"{version} is {self._known[version][0]}, got {address}; give another name")
            return
        with answering(f"does not sample from {address}"):
            client = await asyncio.to_thread(lambda: made(self._service.create_sampling_client(model_path=address)))
        self._known[version] = (address, client)

    async def unload(self, version: str) -> None:
        """Forget a version; the service deletes what it keeps when its time is over."""
        self._asked(version)
        del self._known[version]

    async def loaded(self) -> frozenset[str]:
        """Return the versions that can be asked for."""
        return frozenset(version for version in self._known if version is not None)

    async def context(self) -> int:
        """Return how many tokens prompt and completion may have together."""
        return self._context

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        """Return one completion. The client waits and asks again where the service is busy."""
        if version is None and version not in self._known:
            with answering(f"does not sample from {self._base_model}"):
                client = await asyncio.to_thread(
                    lambda: made(self._service.create_sampling_client(base_model=self._base_model))
                )
            self._known[version] = (self._base_model, client)
        client = self._asked(version)
        if params.stop:
            raise PolicyRefused(f"got stop = {params.stop!r}; a service is asked to stop at ids alone: leave it out")
        asked = self._types.SamplingParams(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            stop=self._ends,
            seed=params.seed,
        )
        given = self._types.ModelInput.from_ints(list(prompt))
        try:
            with answering("gave no sample"):
                future = client.sample(given, 1, asked)
                told = await (future if inspect.isawaitable(future) else asyncio.wrap_future(future))
        except PolicyUnavailable:
            self._known.pop(version, None)  # its session may be gone: it is made anew, and so waited for
            raise
        one = told.sequences[0]
        ids, logprobs = tuple(one.tokens), one.logprobs
        if logprobs is None or len(logprobs) != len(ids):
            raise PolicyRefused(f"the service told no log-probability of each of {len(ids)} tokens; another does")
        known = tuple(math.nan if each is None else float(each) for each in logprobs)
        return Sampled(ids, known, "length" if one.stop_reason == "length" else "stop")

    async def aclose(self) -> None:
        """Forget all versions."""
        self._known.clear()

    def _asked(self, version: str | None) -> Any:
        if version not in self._known:
            known = ", ".join(map(str, self._known)) or "none"
            raise UnknownGeneration(f"{version} is not loaded at the service ({known} is); load it")
        return self._known[version][1]

    def __repr__(self) -> str:
        return f"TinkerEngine({self._base_model!r})"


def refer(directory: Path, address: str) -> str:
    """Write the directory that `TinkerEngine.load` takes, and return a short name of what it refers to."""
    directory.mkdir(parents=True)
    (directory / REFERENCE).write_text(json.dumps({"address": address}))
    return hashlib.sha256(address.encode()).hexdigest()[:8]


def client_package() -> Any:
    """Return the package `tinker`. Raises `PolicyUnavailable` where there is none."""
    try:
        found = importlib.import_module("tinker")
    except ModuleNotFoundError as missing:
        raise PolicyUnavailable("Tinker's API needs its client: pip install 'evolve-agents[tinker]'") from missing
    logging.getLogger("tinker.lib.sync_only").setLevel(logging.ERROR)  # a training waits for each answer
    return found


def made(given: Any) -> Any:
    """Return a client: the newer package makes a future of it, the older one itself."""
    return given.result() if hasattr(given, "result") else given


@contextmanager
def answering(what: str) -> Generator[None]:
    """Turn what the package raises in this block into errors of ours; `what` says what the service does not do."""
    tinker = client_package()
    passing: tuple[type[Exception], ...] = (httpx.HTTPError, *(getattr(tinker, name) for name in PASSING))
    try:
        yield
    except EvolveError:
        raise
    except passing as error:
        raise PolicyUnavailable(f"the Tinker service {what} ({type(error).__name__}: {error})") from error
    except (tinker.TinkerError, ValueError, LookupError, RuntimeError, tarfile.TarError) as error:
        if "user" not in str(getattr(error, "category", "user")).lower():  # of a `RequestFailedError`
            raise PolicyUnavailable(f"the Tinker service {what} ({error})") from error
        raise PolicyRefused(
            f"the Tinker service {what} ({type(error).__name__}: {error}); a server of others may want an older "
            "client: SkyRL 0.3 wants tinker 0.20"
        ) from error
