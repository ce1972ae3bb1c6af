"""Contracts of the acting floor: messages in, a reply with everything the backend can tell out."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field, PlainSerializer

from memory.records import Frozen, ToolCall, Usage

MessageRole = Literal["system", "user", "assistant", "tool"]
"""Who says a message."""
Profile = Literal["full", "compact"]
"""`full` prompts are for general models; `compact` ones carry the same fields in the pocket model's dialect."""


class Message(Frozen):
    """One chat message."""

    role: MessageRole
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    token_ids: tuple[int, ...] | None = None
    """What the policy sampled to say this: an engine that works on ids goes on from them, not from the text."""


class ToolSpec(Frozen):
    """A tool the policy may call natively: JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


class SamplingParams(Frozen):
    """How to sample. The defaults are greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int | None = None
    response_schema: dict[str, Any] | None = None
    """JSON schema the reply must follow, where the backend can constrain decoding."""
    tools: tuple[ToolSpec, ...] = ()


def _known(value: float | None) -> float:
    return nan if value is None else value


def _told(value: float) -> float | None:
    return value if isfinite(value) else None


Logprob = Annotated[float, BeforeValidator(_known), PlainSerializer(_told, return_type=float | None, when_used="json")]
"""A log-probability; nan where the server gave none, which is null in JSON."""


class Reply(Frozen):
    """One completion. Token-level fields are None where the backend does not offer them."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[Logprob, ...] | None = None
    """Natural-log probability of each completion token under the sampling policy."""
    usage: Usage = Usage()
    policy_version: str = ""
    key: str = ""
    """Where the journal keeps it; empty = nowhere."""


class ReplyStore(Protocol):
    """Where `CachedPolicy` keeps replies: a run of a workspace, or a file of recordings."""

    async def put_reply(self, key: str, reply: dict[str, Any]) -> None:
        """Store a reply durably; it is used only after this returned."""
        ...

    def get_reply(self, key: str) -> dict[str, Any] | None:
        """Return what was stored under `key`, or None."""
        ...


class Policy(Protocol):
    """A language model behind one method. Implementations never import each other."""

    @property
    def name(self) -> str:
        """Model name as configured."""
        ...

    @property
    def version(self) -> str:
        """Identity of the weights that answer now (hash or served adapter name)."""
        ...

    @property
    def profile(self) -> Profile:
        """Which set of prompts suits it."""
        ...

    @property
    def supports_schema(self) -> bool:
        """True when `SamplingParams.response_schema` constrains decoding."""
        ...

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return one completion. Raises `PolicyError` when the backend failed after its retries."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens this policy's tokenizer makes of `text` (an estimate where it has none)."""
        ...

    async def aclose(self) -> None:
        """Release connections and threads."""
        ...
