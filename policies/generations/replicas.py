"""Route a request to one of several servers: the one that has computed its prompt's beginning, unless it has too much.

Rendezvous hashing orders the servers for each beginning; the first one whose load is within a bound takes the request
(consistent hashing with bounded loads, arXiv 1608.01350). So turns of one conversation, and tasks that are shown the
same knowledge, meet their keys and values in one server's prefix cache, a server that is taken away moves its own
requests alone, and none has more than a quarter above the mean while another has less.

A server that cannot be reached is left out of this for a while; `Replicas` knows which are in use.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import httpx

from policies.errors import PolicyError, PolicyRefused, PolicyUnavailable, TimedOut
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.openai_transport import Connection, Transport

log = logging.getLogger(__name__)

BEGINNING = 256
"""Tokens of a prompt by which requests are told apart: what the world and the playbook say at least."""
ABOVE_MEAN = 1.25
TRIES = 2
"""Times that one of several servers is asked before the next one is; the second opens a new connection."""
LEFT_OUT_S = 30.0
"""Seconds that a server which cannot be reached is left out before it is looked at again: starting one takes longer."""
LOOK_S = 10.0
"""Seconds that a server has to say what it serves: a request may wait for it."""
LOADING_S = 120.0
AWAY = frozenset({429, 502, 503, 504})
"""HTTP status of a server that is starting, busy or gone behind its proxy."""
LOGPROBS = "processed_logprobs"
QUOTED = 300


def chosen(urls: Sequence[str], loads: Sequence[int], prompt: Sequence[int], version: str | None) -> int:
    """Return the index of the server for one more request, by the requests that each of them has now."""
    most = bound(loads)
    return next(at for at in order(urls, prompt, version) if loads[at] < most)


def bound(loads: Sequence[int]) -> int:
    """Return how many requests a server may have with one more: a quarter above the mean, and no fewer than any has."""
    return max(min(loads) + 1, math.floor(ABOVE_MEAN * (sum(loads) + 1) / len(loads)))


def order(urls: Sequence[str], prompt: Sequence[int], version: str | None) -> list[int]:
    """Return the indices of the servers, the one for prompts that begin like this and that version first."""
    begins = f"{version} {' '.join(map(str, prompt[:BEGINNING]))}".encode()
    weights = [
        blake2b(begins, digest_size=8, key=blake2b(url.encode(), digest_size=32).digest()).digest() for url in urls
    ]
    return sorted(range(len(urls)), key=lambda at: weights[at])


class Replicas:
    """vLLM servers of one model: which of them are in use, what each serves, and how it is asked.

    All are in use at first, and a single one always is. One that cannot be reached is left out for `LEFT_OUT_S`, then
    looked at: it is in use again once it serves what was loaded here and what all others in use serve, and no more what
    was unloaded here. One that serves another adapter under such a name, or refuses one, stays out. Servers are named
    by their place in `urls`.
    """

    def __init__(self, urls: Sequence[str], api_key: str | None, timeout_s: float) -> None:
        """Connect to nothing yet. Raises `BadInput` for a URL that is no http(s) URL."""
        self.urls = tuple(url.rstrip("/") for url in urls)
        self.lengths: dict[int, int] = {}
        """Context of each server that said what it serves, in tokens."""
        self._bases: dict[int, list[str]] = {}
        """Names of the base model on each of them."""
        api_key = (api_key or "").strip()  # as `Transport` takes it
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        tries = {"attempts": TRIES} if len(self.urls) > 1 else {}
        self._transports = [
            Transport(
                Connection.model_validate({"base_url": url, "timeout_s": timeout_s, **tries}), api_key, late_again=False
            )
            for url in self.urls
        ]
        self._out: dict[int, tuple[float, BaseException]] = {}
        """Servers out of use, each with when it is to be looked at (of the monotonic clock) and why it is out."""
        self._loaded: dict[str, str] = {}
        """What was loaded here and not unloaded, with where it is read from."""
        self._unloaded: set[str] = set()
        self._roots: dict[str, str] = {}
        """Where versions that were seen are read from: a name is never used for two adapters."""
        self._foreign: set[int] = set()
        """Servers whose base has a name of its own, which was warned of."""
        self._warned: set[int] = set()
        """Servers whose `logprobs_mode` was warned of."""

    async def usable(self, failed: Collection[int] = ()) -> list[int]:
        """Return the servers in use but for those in `failed`, after a look at those whose time out of use is over.

        Where none is in use, all are looked at but for those in `failed`.
        """
        in_use, now = self._in_use(), time.monotonic()
        due = [at for at, (until, _) in self._out.items() if at not in failed and (until <= now or not in_use)]
        for at in due:
            self._out[at] = (now + LEFT_OUT_S, self._out[at][1])  # other requests go on without a look of their own
        await asyncio.gather(*(self._look(at, in_use) for at in due))
        return [at for at in self._in_use() if at not in failed]

    def leave_out(self, at: int, why: BaseException, *, due: bool = False) -> None:
        """Take one of several servers out of use for `LEFT_OUT_S`, or until the next request looks at it (`due`)."""
        if len(self.urls) == 1:
            return
        if at not in self._out or str(self._out[at][1]) != str(why):
            log.warning("%s is left out: %s", self.urls[at], why)
        self._out[at] = (time.monotonic() + (0.0 if due else LEFT_OUT_S), why)

    def is_out(self, at: int) -> bool:
        """Tell whether a server is out of use."""
        return at in self._out

    def none_left(self, failed: Mapping[int, BaseException]) -> PolicyUnavailable:
        """Return the error that says of every server, in `failed` or out of use, why it is not asked."""
        found = {at: why for at, (_, why) in self._out.items()} | dict(failed)
        why = "; ".join(str(found[at]) for at in sorted(found))
        return PolicyUnavailable(why if len(self.urls) == 1 else f"none of {len(self.urls)} servers answers: {why}")

    async def call(self, at: int, path: str, body: dict[str, Any]) -> Any:
        """Post to one server and return the JSON object.

        Raises as `Transport.call`; `TimedOut` only of a server that still says what it serves.
        """
        try:
            return await self._transports[at].call(path, body)
        except TimedOut:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._adapters(at)
            except (TimeoutError, TimedOut):
                raise self._silent(at) from None
            raise

    async def base(self, at: int, wanted: str) -> str:
        """Return the name of the base model on one server: the one that is `wanted`, where the server knows it."""
        if at not in self._bases:
            await self._adapters(at)
        names = self._bases[at]
        if wanted in names or not names:
            return wanted
        if at not in self._foreign:
            self._foreign.add(at)
            log.warning("%s is asked as %r for its base; see that these are the same weights", self.urls[at], names[0])
        return names[0]

    async def adapters(self) -> dict[int, dict[str, str]]:
        """Return of each server in use the adapters it serves, with where it read them from.

        One that cannot be reached is left out. Raises `PolicyUnavailable` where none can be.
        """
        failed: dict[int, BaseException] = {}
        while usable := await self.usable(failed):
            listed = await asyncio.gather(*map(self._adapters, usable), return_exceptions=True)
            failed |= self._failures(usable, listed)
            if refused := [why for why in failed.values() if not isinstance(why, PolicyUnavailable)]:
                raise refused[0]
            if there := {at: on for at, on in zip(usable, listed, strict=True) if not isinstance(on, BaseException)}:
                return there
        raise self.none_left(failed)

    async def load(self, version: str, root: str, at: Sequence[int]) -> dict[int, BaseException]:
        """Load an adapter on servers; return why which of them failed. One that cannot be reached is left out."""
        self._roots[version] = root
        self._unloaded.discard(version)
        failed = await self._each("load", _loading(version, root), at)
        if len(failed) < len(at) or not at:
            self._loaded[version] = root
        return failed

    async def unload(self, version: str, at: Sequence[int]) -> dict[int, BaseException]:
        """Unload a version on servers; return why which of them failed. One that cannot be reached is left out."""
        self._loaded.pop(version, None)
        self._unloaded.add(version)
        return await self._each("unload", {"lora_name": version}, at)

    async def told_slots(self, at: int) -> int | None:
        """Return how many requests at once a server says it answers: 0 where it says nothing, None where it is away.

        Warn once of a server that says that its log-probabilities are not those it samples by.
        """
        place = f"{self.urls[at].removesuffix('/v1')}/server_info"
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=LOOK_S, headers=self._headers) as client:
                answer = await client.get(place, params={"config_format": "json"})
        except httpx.HTTPError:
            return None
        if answer.status_code in AWAY:
            return None
        try:
            told = answer.json()["vllm_config"]
            slots = int(told["scheduler_config"]["max_num_seqs"])
        except (LookupError, TypeError, ValueError):
            return 0
        mode = (told.get("model_config") or {}).get("logprobs_mode", LOGPROBS)
        if mode != LOGPROBS and at not in self._warned:
            self._warned.add(at)
            log.warning(
                "%s tells log-probabilities of before temperature and top_p (%s), and a training takes those of after; "
                "start it with --logprobs-mode %s",
                *(self.urls[at], mode, LOGPROBS),
            )
        return slots

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        for each in self._transports:
            await each.aclose()

    def _in_use(self) -> list[int]:
        return [at for at in range(len(self.urls)) if at not in self._out]

    async def _look(self, at: int, others: Sequence[int]) -> None:
        """Take a server into use again once it serves what all `others` do; else say why it stays out."""
        try:
            await self._bring_in_line(at, others)
        except TimeoutError:
            self.leave_out(at, self._silent(at))
        except PolicyError as error:
            self.leave_out(at, error)
        else:
            self._out.pop(at, None)
            log.info("%s is in use again", self.urls[at])

    def _silent(self, at: int) -> PolicyUnavailable:
        """Return the error of a server that takes requests and answers none."""
        return PolicyUnavailable(f"{self.urls[at]} did not say within {LOOK_S:g} s what it serves; start it again")

    async def _bring_in_line(self, at: int, others: Sequence[int]) -> None:
        """Load on a server what it lacks of what was loaded here and what all `others` serve; unload the unloaded.

        Raises `AdapterRefused` for a name that it serves another adapter under, or an adapter that it refuses.
        """
        async with asyncio.timeout(LOOK_S):
            has, *listed = await asyncio.gather(
                self._adapters(at), *map(self._adapters, others), return_exceptions=True
            )
        if isinstance(has, BaseException):
            raise has
        there = {other: on for other, on in zip(others, listed, strict=True) if not isinstance(on, BaseException)}
        for other, on in there.items():
            if wrong := self._another(other, on):
                self.leave_out(other, wrong)
        theirs = [set(on.items()) for other, on in there.items() if not self.is_out(other)]
        wanted = dict[str, str](set.intersection(*theirs)) if theirs else {}
        wanted = {name: root for name, root in wanted.items() if name not in self._unloaded} | self._loaded
        self._roots = wanted | self._roots
        if wrong := self._another(at, has):
            raise wrong
        for version in self._unloaded & has.keys():
            await self._post(at, "unload", {"lora_name": version})
        for version in wanted.keys() - has.keys():
            await self._post(at, "load", _loading(version, wanted[version]))

    def _another(self, at: int, on: Mapping[str, str]) -> AdapterRefused | None:
        """Return what is wrong with a server that serves another adapter under a known name."""
        wrong = next((name for name, root in on.items() if self._roots.get(name, root) != root), None)
        if wrong is None:
            return None
        told = f"{self.urls[at]} serves {wrong} from {on[wrong]!r}, expected {self._roots[wrong]!r}; start it again"
        return AdapterRefused(told)

    async def _adapters(self, at: int) -> dict[str, str]:
        """Return the adapters that a server serves, with where it read them from."""
        listing = await self._transports[at].call("/models")
        cards = [card for card in listing.get("data") or () if isinstance(card, dict)]
        self._bases[at] = [str(card["id"]) for card in cards if not card.get("parent")]
        lengths = [length for card in cards if isinstance(length := card.get("max_model_len"), int)]
        self.lengths |= {at: min(lengths)} if lengths else {}
        return {str(card["id"]): str(card.get("root")) for card in cards if card.get("parent")}

    def _failures(self, at: Sequence[int], done: Sequence[object]) -> dict[int, BaseException]:
        """Return what failed of which servers; one that cannot be reached is left out."""
        failed = {each: why for each, why in zip(at, done, strict=True) if isinstance(why, BaseException)}
        for each, why in failed.items():
            if isinstance(why, PolicyUnavailable):
                self.leave_out(each, why)
        return failed

    async def _each(self, verb: str, body: dict[str, Any], at: Sequence[int]) -> dict[int, BaseException]:
        done = await asyncio.gather(*(self._post(each, verb, body) for each in at), return_exceptions=True)
        return self._failures(at, done)

    async def _post(self, at: int, verb: str, body: dict[str, Any]) -> None:
        url = self.urls[at]
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
        if answer.status_code in AWAY:
            raise PolicyUnavailable(
                f"{url} cannot {verb} {body['lora_name']} now (HTTP {answer.status_code}: {said}); start the server"
            )
        if answer.status_code in (404, 405) and "lora" not in said.lower():
            raise PolicyRefused(
                f"{url} cannot load adapters while it runs (HTTP {answer.status_code}: {said}); start it with "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora, as `evolve policy serve` does"
            )
        if verb == "unload" and answer.status_code == 404:
            raise UnknownGeneration(f"{url} has no {body['lora_name']} to unload ({said})")
        raise AdapterRefused(f"{url} refused to {verb} {body['lora_name']} (HTTP {answer.status_code}: {said})")


def _loading(version: str, root: str) -> dict[str, Any]:
    """Return what a server is asked to load."""
    return {"lora_name": version, "lora_path": root, "load_inplace": False}
