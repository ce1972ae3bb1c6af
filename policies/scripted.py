"""The shipped fake: a policy that answers from a script. Deterministic, instant or with a simulated latency."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from memory.errors import BadInput
from memory.records import Usage
from policies.errors import PolicyError, PolicyRefused
from policies.protocols import Message, Profile, Reply, SamplingParams
from policies.tokens import estimate_prompt, estimate_tokens

Answer = str | Reply | PolicyError
"""What a script says: text, a whole reply (tool calls, token ids), or an error to raise."""
Script = Sequence[Answer] | Callable[[Sequence[Message], SamplingParams], Answer]
"""Answers in order, or a function that answers."""

HISTORY = 256


class ScriptedPolicy:
    """Answers with the script's next item, or with what the script's function returns for these messages.

    A sequence is answered in the order of calls; a function sees only its arguments, so that its answers do not depend
    on concurrency. A sequence that has run out raises `PolicyRefused`. Usage is estimated unless the script's `Reply`
    brings its own. `seen` keeps the messages of the last calls.
    """

    profile: Profile
    in_process = True
    """A call costs nothing but time."""

    def __init__(
        self,
        script: Script,
        name: str = "scripted",
        profile: Profile = "full",
        *,
        latency_s: float = 0.0,
        version: str | None = None,
        supports_schema: bool = False,
    ) -> None:
        self.name = name
        self.profile = profile
        self.supports_schema = supports_schema
        self.version = version or _version(script)
        self.calls = 0
        self.seen: deque[tuple[Message, ...]] = deque(maxlen=HISTORY)
        self._script = script
        self._latency_s = latency_s

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the script's answer after `latency_s` seconds. Raises the script's own errors."""
        index = self.calls
        self.calls += 1
        self.seen.append(tuple(messages))
        answer = self._answer(index, messages, params)
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        if isinstance(answer, PolicyError):
            raise answer
        if not isinstance(cast("object", answer), str | Reply):
            raise BadInput(f"{self.version} gave {answer!r} for call {index + 1}; expected a text or a Reply")
        reply = Reply(text=answer) if isinstance(answer, str) else answer
        usage = reply.usage if reply.usage != Usage() else self._usage(messages, reply)
        return reply.model_copy(update={"usage": usage, "policy_version": reply.policy_version or self.version})

    def count_tokens(self, text: str) -> int:
        """Return the estimate of `policies.tokens`."""
        return estimate_tokens(text)

    async def aclose(self) -> None:
        """Nothing to release."""

    def _answer(self, index: int, messages: Sequence[Message], params: SamplingParams) -> Answer:
        if not isinstance(self._script, Sequence):
            return self._script(messages, params)
        if index >= len(self._script):
            raise PolicyRefused(
                f"script of {self.name!r} has {len(self._script)} replies, call {index + 1} was made; "
                "add replies or script a function"
            )
        return self._script[index]

    def _usage(self, messages: Sequence[Message], reply: Reply) -> Usage:
        tools = sum(estimate_tokens(call.name + str(call.arguments)) for call in reply.tool_calls)
        completion = len(reply.token_ids) if reply.token_ids is not None else estimate_tokens(reply.text) + tools
        return Usage(prompt_tokens=estimate_prompt(messages), completion_tokens=completion, calls=1)

    def __repr__(self) -> str:
        return f"ScriptedPolicy(name={self.name!r}, version={self.version!r})"


def _version(script: Script) -> str:
    """Name a script by its content: the hash of its replies, or the name of its function."""
    if isinstance(script, Sequence):
        text = "\x1f".join(item.model_dump_json() if isinstance(item, Reply) else str(item) for item in script)
        return f"script-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return f"script-{getattr(script, '__qualname__', type(script).__qualname__)}"
