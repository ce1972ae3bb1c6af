"""Replies are stored before they are used: a resumed run pays for no reply twice, a test replays without a model.

The key is the sha256 of (scope, model, version, messages, params) and, where sampling is unseeded, of how often this
policy has asked the same before: two samples stay two samples, and a resumed run meets them in the same order.
A replayed reply is the stored one, its usage included: an episode that was interrupted then counts the same calls and
tokens as one that was not, and whatever is decided from them is decided alike. What was really asked for is counted by
the `Budget` inside, and by `misses`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from policies.errors import PolicyRefused
from policies.protocols import Message, Policy, Reply, ReplyStore, SamplingParams
from policies.wrapped import WrappedPolicy

log = logging.getLogger(__name__)


class CachedPolicy(WrappedPolicy):
    """Answers from `store` what it holds, else asks `policy` and stores the reply before handing it out.

    `scope` keeps runs apart (a run id: the run replays its own replies only; empty: replies are shared). With
    `replay_only` an unknown request raises `PolicyRefused` instead of reaching the policy. With `any_version` an
    episode that was begun under other weights is replayed as well, and goes on under these: the scope must then say
    whose episode it is; a reply names the weights that gave it. `hits` and `misses` count.
    """

    def __init__(
        self,
        policy: Policy,
        store: ReplyStore,
        *,
        scope: str = "",
        replay_only: bool = False,
        any_version: bool = False,
    ) -> None:
        super().__init__(policy)
        self.hits = 0
        self.misses = 0
        self._store = store
        self._scope = scope
        self._replay_only = replay_only
        self._any_version = any_version
        self._asked: Counter[str] = Counter()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the stored reply, or a new one that has been stored. Equal requests in flight make one call."""
        key = self._key(messages, params)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            if stored := self._stored(key):
                self.hits += 1
                return stored
            if self._replay_only:
                raise PolicyRefused(
                    f"no recorded reply of {self.name!r} ({self.version!r}) for this request (key {key[:12]}); "
                    "the prompt or the parameters changed: record again"
                )
            self.misses += 1
            reply = await super().generate(messages, params)
            data = reply.model_dump(mode="json", exclude={"key"})
            await self._store.put_reply(key, {"reply": data, "sha256": _digest(data)})
            return reply.model_copy(update={"key": key})

    def _key(self, messages: Sequence[Message], params: SamplingParams) -> str:
        version = "" if self._any_version else self.version
        key = request_key((self._scope, self.name, version), messages, params)
        if params.temperature == 0 or params.seed is not None:
            return key
        self._asked[key] += 1
        return _digest([key, self._asked[key]])

    def _stored(self, key: str) -> Reply | None:
        """Return the stored reply. One that was redacted on its way in is no longer what the model said: ask again."""
        entry = self._store.get_reply(key)
        if entry is None:
            return None
        if _digest(entry["reply"]) != entry["sha256"]:
            log.warning("the stored reply %s of %s had a secret removed and cannot be replayed", key[:12], self.name)
            return None
        return Reply.model_validate(entry["reply"] | {"key": key})

    def __repr__(self) -> str:
        return f"CachedPolicy({self.policy!r}, scope={self._scope!r}, replay_only={self._replay_only})"


def request_key(asked: tuple[str, str, str], messages: Sequence[Message], params: SamplingParams) -> str:
    """Return the key of a request to `asked` = (scope, model, version): equal keys, equal prompt to the byte."""
    return _digest([*asked, [_request(message) for message in messages], params.model_dump(mode="json")])


def _request(message: Message) -> dict[str, Any]:
    """Return a message as part of a key; one without token ids has the key it had before messages knew them."""
    return message.model_dump(mode="json", exclude=None if message.token_ids else {"token_ids"})


def _digest(value: Any) -> str:
    """Return the sha256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
