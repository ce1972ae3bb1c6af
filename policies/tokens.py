"""Token counts where no tokenizer is at hand: an estimate that needs no download and never fails."""

from __future__ import annotations

from collections.abc import Sequence

from policies.protocols import Message

MESSAGE_OVERHEAD = 4
"""Tokens a chat template adds around one message (role and delimiters), rounded up."""


def estimate_tokens(text: str) -> int:
    """Return `ceil(UTF-8 bytes / 4)`: near English and code, low for digits, within a third for CJK."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def estimate_prompt(messages: Sequence[Message]) -> int:
    """Return the estimated tokens of a whole chat prompt, tool calls included."""
    return sum(
        MESSAGE_OVERHEAD
        + estimate_tokens(message.content)
        + sum(estimate_tokens(call.name + str(call.arguments)) for call in message.tool_calls)
        for message in messages
    )
