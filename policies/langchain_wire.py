"""LangChain messages and errors, both ways: pure functions, no calls."""

from __future__ import annotations

import sys
from typing import Any, cast

import httpx
from langchain_core.exceptions import ModelError
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from memory.records import ToolCall, Usage
from memory.redact import redact
from policies.errors import PolicyError, PolicyRefused, PolicyUnavailable
from policies.protocols import Message, Reply
from policies.toolcalls import parse_arguments

_SDK_ERRORS = (
    ("openai", "OpenAIError"),
    ("anthropic", "AnthropicError"),
    ("groq", "GroqError"),
    ("ollama", "ResponseError"),
    ("google.genai.errors", "APIError"),
)
"""Errors of provider packages that do not all speak LangChain's `ModelError` yet."""


def to_reply(message: AIMessage, version: str) -> Reply:
    """Return the reply. Usage that the provider did not tell stays 0; badly written tool arguments are recovered."""
    meta = message.response_metadata
    calls = [
        ToolCall(id=c["id"] or f"call_{n}", name=c["name"], arguments=c["args"])
        for n, c in enumerate(message.tool_calls)
    ]
    calls += [
        ToolCall(id=c["id"] or f"bad_{n}", name=c["name"] or "", arguments=parse_arguments(c["args"]))
        for n, c in enumerate(message.invalid_tool_calls)
    ]
    return Reply(
        text=str(message.text),
        tool_calls=tuple(calls),
        finish_reason=str(meta.get("finish_reason") or meta.get("stop_reason") or "stop"),
        logprobs=_logprobs(meta.get("logprobs")),
        usage=_usage(message),
        policy_version=str(meta.get("model_name") or meta.get("model") or version),
    )


def _logprobs(told: Any) -> tuple[float, ...] | None:
    """Return what a provider told per token, or a `TokenChatModel` as a plain list."""
    if isinstance(told, list):
        return tuple(cast("list[float]", told))
    tokens = (told or {}).get("content")
    return None if tokens is None else tuple(token["logprob"] for token in tokens)


def cut_off(error: Exception) -> AIMessage | None:
    """Return the reply inside openai's "length limit was reached" error: a truncated reply is one, and was paid for."""
    completion = getattr(error, "completion", None)
    if completion is None:
        return None
    usage = completion.usage
    return AIMessage(
        completion.choices[0].message.content or "",
        response_metadata={"finish_reason": completion.choices[0].finish_reason, "model_name": completion.model},
        usage_metadata=usage
        and {
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.completion_tokens,
            "total_tokens": usage.total_tokens,
        },
    )


def _usage(message: AIMessage) -> Usage:
    told = message.usage_metadata
    if told is None:
        return Usage(calls=1)
    return Usage(
        prompt_tokens=told["input_tokens"],
        completion_tokens=told["output_tokens"],
        cached_tokens=told.get("input_token_details", {}).get("cache_read", 0),
        calls=1,
    )


def to_langchain(message: Message) -> AnyMessage:
    """Return the LangChain message of the same role, tool calls and tool call id included."""
    match message.role:
        case "system":
            return SystemMessage(message.content)
        case "user":
            return HumanMessage(message.content)
        case "tool":
            return ToolMessage(message.content, tool_call_id=message.tool_call_id or "")
        case "assistant":
            calls = [{"id": c.id, "name": c.name, "args": c.arguments} for c in message.tool_calls]
            return AIMessage(message.content, tool_calls=calls)


def sdk_errors() -> tuple[type[Exception], ...]:
    """Return the error classes of the provider packages that are loaded."""
    return tuple(getattr(sys.modules[module], name) for module, name in _SDK_ERRORS if module in sys.modules)


def translated(name: str, error: Exception) -> PolicyError:
    """Return our error: unavailable when trying again later may help, refused otherwise."""
    status = getattr(error, "status_code", told(error).get("code"))
    if status is None and isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
    if status in (401, 403):
        return PolicyRefused(
            f"{name}: the provider refused the key (HTTP {status}: {quotable(error)}); set a valid one"
        )
    if status == 404:
        return PolicyRefused(f"{name}: the provider does not know this model ({quotable(error)}); correct its name")
    if isinstance(error, ModelError) and status is None and not error.is_retryable:
        return PolicyRefused(f"{name} refused the request ({quotable(error)})")
    if isinstance(status, int) and status < 500 and status not in (408, 409, 425, 429):
        return PolicyRefused(f"{name} refused the request (HTTP {status}: {quotable(error)})")
    return PolicyUnavailable(
        f"{name} gave no answer ({quotable(error)}); check the server and the network, then resume"
    )


def told(error: Exception) -> dict[str, Any]:
    """Return the error that a gateway passed on under HTTP 200, which LangChain raises as a `ValueError` of it."""
    said = error.args[0] if isinstance(error, ValueError) and error.args else None
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def quotable(error: Exception) -> str:
    """Return an error as one short line without secrets."""
    return redact(" ".join(f"{type(error).__name__}: {error}".split()))[:300]
