"""The OpenAI chat format, both ways: pure functions between our records and JSON. No network.

`Offers` says which optional features the server is taken to have; `narrow` takes back the one that an HTTP 400 names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from memory.records import Frozen, ToolCall, Usage
from policies.protocols import Message, Reply, SamplingParams, ToolSpec
from policies.schemas import unbounded
from policies.toolcalls import parse_arguments


class Offers(Frozen):
    """Optional features of a server. All but `token_ids` are assumed until refused."""

    json_schema: bool = True
    bounds: bool = True
    """`maxLength` and `maxItems` in a schema."""
    token_ids: bool = False
    """vLLM's token ids, with log-probabilities."""
    seed: bool = True
    sampling: bool = True
    """`temperature` and `top_p`; reasoning models take their defaults only."""
    max_completion_tokens: bool = False
    """The newer name of `max_tokens`."""


_REFUSALS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("bounds", "response_format", ("maxlength", "maxitems", "repetitions"), "schemas without bounds"),
    (
        "json_schema",
        "response_format",
        ("response_format", "json_schema", "grammar", "guided", "structured"),
        "free text",
    ),
    ("token_ids", "return_token_ids", ("return_token_ids", "logprobs"), "no token ids and log-probabilities"),
    ("seed", "seed", ("seed",), "unseeded sampling"),
    ("sampling", "temperature", ("temperature", "top_p"), "the server's own temperature and top_p"),
)
"""Feature, the body's key that asks for it, words of a refusal that name it, what is left without it."""

_UNSUPPORTED = ("support", "unrecogni", "unknown", "unexpected", "permitted", "allowed", "extra")
"""Words that tell a refused feature from a wrong value of one. A schema is given up for any complaint about it."""


def request(model: str, messages: Sequence[Message], params: SamplingParams, offers: Offers) -> dict[str, Any]:
    """Return the JSON body of one chat completion."""
    limit = "max_completion_tokens" if offers.max_completion_tokens else "max_tokens"
    body: dict[str, Any] = {"model": model, "messages": [_message(m) for m in messages], limit: params.max_tokens}
    if offers.sampling:
        body |= {"temperature": params.temperature, "top_p": params.top_p}
    if params.stop:
        body["stop"] = list(params.stop)
    if params.seed is not None and offers.seed:
        body["seed"] = params.seed
    if params.response_schema is not None and offers.json_schema:
        schema = params.response_schema if offers.bounds else unbounded(params.response_schema)
        name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title", "reply")))[:64]
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
    if params.tools:
        body["tools"] = [tool_schema(tool) for tool in params.tools]
    if offers.token_ids:
        body |= {"logprobs": True, "return_token_ids": True}
    return body


def defused(messages: Sequence[Message], special_tokens: Sequence[str]) -> Sequence[Message]:
    """Return the messages with every special token in their text broken up by a space after its first character."""
    if not special_tokens:
        return messages
    whole = re.compile("|".join(map(re.escape, sorted(special_tokens, key=len, reverse=True))))
    return [
        message.model_copy(
            update={"content": whole.sub(lambda found: f"{found[0][0]} {found[0][1:]}", message.content)}
        )
        for message in messages
    ]


def tool_schema(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool as a function schema. `return`, which vLLM drops from prompts, is left out everywhere."""
    parameters = {key: value for key, value in tool.parameters.items() if key != "return"}
    parameters = parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def narrow(offers: Offers, body: Mapping[str, Any], refusal: str) -> tuple[Offers, str] | None:
    """Return (offers without what the refusal names, what that means), or None when it names none of them."""
    text = refusal.lower()
    if "max_completion_tokens" in text and "max_tokens" in body and "context length" not in text:
        return offers.model_copy(update={"max_completion_tokens": True}), "max_completion_tokens instead of max_tokens"
    unsupported = any(word in text for word in _UNSUPPORTED)
    for feature, key, words, meaning in _REFUSALS:
        offered = key in body and getattr(offers, feature)
        if offered and (unsupported or feature in ("bounds", "json_schema")) and any(word in text for word in words):
            return offers.model_copy(update={feature: False}), meaning
    return None


def reply(data: Mapping[str, Any], version: str) -> Reply:
    """Return the first choice of a chat completion. Ids and log-probabilities that do not match in number are left out.

    Raises `LookupError` or `TypeError` for a body that is no chat completion.
    """
    choice = data["choices"][0]
    message = choice["message"]
    ids, logprobs = choice.get("token_ids"), _logprobs(choice)
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        logprobs = None
    return Reply(
        text=message.get("content") or "",
        tool_calls=tuple(_tool_call(call, n) for n, call in enumerate(message.get("tool_calls") or ())),
        finish_reason=choice.get("finish_reason") or "stop",
        prompt_token_ids=data.get("prompt_token_ids"),
        token_ids=ids,
        logprobs=logprobs,
        usage=_usage(data.get("usage") or {}),
        policy_version=data.get("model") or version,
    )


def _message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def _tool_call(call: Mapping[str, Any], number: int) -> ToolCall:
    function = call["function"]
    return ToolCall(
        id=call.get("id") or f"call_{number}",
        name=function["name"],
        arguments=parse_arguments(function.get("arguments")),
    )


def _logprobs(choice: Mapping[str, Any]) -> tuple[float, ...] | None:
    content = (choice.get("logprobs") or {}).get("content")
    return None if content is None else tuple(token["logprob"] for token in content)


def _usage(usage: Mapping[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=usage.get("prompt_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
        cached_tokens=details.get("cached_tokens") or 0,
        calls=1,
    )
