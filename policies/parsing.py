"""From what a model wrote to the JSON objects in it: pure, tolerant, bounded in time.

Think blocks go first. Then brace-balanced spans are looked at from the last to the first (a model corrects itself
downwards), each parsed as JSON and, failing that, repaired; a truncated tail counts as a span. Fences need no treatment
of their own: what stands between braces is the same with and without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_CHARS = 200_000
"""Longer texts are read at both ends only, half of this each."""
MAX_DEPTH = 48
"""Deeper nesting is no answer; parsers recurse."""
MAX_SPANS = 64
MAX_TAILS = 4
MAX_REPAIR = 40_000
"""Longest span handed to json-repair, in characters."""
SCAN_BUDGET = 2_000_000
"""Characters that may be scanned again after braces that never close."""

_TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_TO_END = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}\[\],]', re.DOTALL)
_STRAY_QUOTE = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],]', re.DOTALL)
_CLOSE = {"{": "}", "[": "]"}


@dataclass(frozen=True)
class Span:
    """A piece of text that starts with a brace. `closed` is False for a truncated tail."""

    text: str
    closed: bool = True


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a model's reply, the most likely answer first.

    The whole text alone when it is JSON as it stands; otherwise what stands outside think blocks, last first.
    """
    text = text.strip()
    if text.startswith("{") and len(text) <= MAX_CHARS and isinstance(whole := _strict(text), dict):
        yield whole
        return
    half = MAX_CHARS // 2
    for part in [text] if len(text) <= MAX_CHARS else [text[-half:], text[:half]]:
        for span in spans(strip_thoughts(part)):
            value = _strict(span.text) if span.closed else None
            value = _repaired(span.text) if value is None else value
            if isinstance(value, dict):
                yield value


def strip_thoughts(text: str) -> str:
    """Return the text without think blocks: paired, without an opening tag, never closed."""
    kept: list[str] = []
    position, inside, first = 0, False, True
    for tag in _TAG.finditer(text):
        closing = bool(tag.group(1))
        if closing and first:
            kept.clear()
        elif not inside:
            kept.append(text[position : tag.start()])
        inside, first, position = not closing, False, tag.end()
    if not inside:
        kept.append(text[position:])
    return "".join(kept).strip()


def spans(text: str) -> list[Span]:
    """Return outermost spans to try, best first: tails whose brace never closes, then balanced spans, last first.

    A tail comes first because a balanced span inside it is a part of the truncated answer, not the answer.
    """
    found: list[Span] = []
    tails: list[Span] = []
    restarts = max(MAX_TAILS, SCAN_BUDGET // (len(text) + 1))
    start = text.find("{")
    while start >= 0 and restarts:
        end, cut = _balance(text, start, _TO_END)
        end = end or _balance(text, start, _STRAY_QUOTE)[0]
        if end:
            found.append(Span(text[start:end]))
        else:
            restarts -= 1
            if cut and len(tails) < MAX_TAILS:
                tails.append(Span(text[start:cut].rstrip().removesuffix("```"), closed=False))
        start = text.find("{", end or start + 1)
    return tails + found[: -MAX_SPANS - 1 : -1]


def _balance(text: str, start: int, tokens: re.Pattern[str]) -> tuple[int, int]:
    """Return (end of the span that opens at `start`, 0) or (0, where to cut the unclosed one; 0 = nested too deep)."""
    stack: list[tuple[str, int]] = []
    """Open brackets, each with the position of its last comma."""
    last = start
    for token in tokens.finditer(text, start):
        mark, last = token.group(), token.end()
        if mark in _CLOSE:
            stack.append((mark, 0))
            if len(stack) > MAX_DEPTH:
                return 0, 0
        elif mark == ",":
            stack[-1] = (stack[-1][0], token.start())
        elif mark in ("}", "]"):
            if _CLOSE[stack.pop()[0]] != mark:
                return 0, len(text)
            if not stack:
                return last, 0
    element_is_whole = stack[-1][0] == "[" and not text[last:].strip()
    commas = [comma for bracket, comma in stack if bracket == "[" and comma]
    return 0, commas[-1] if commas and not element_is_whole else len(text)


def _strict(text: str) -> Any:
    """Return parsed JSON (raw line breaks in strings allowed), or None."""
    try:
        return _clean(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        return None


def _repaired(text: str) -> Any:
    """Return what json-repair makes of a span, or None."""
    from json_repair import loads

    if len(text) > MAX_REPAIR:
        return None
    try:
        return _clean(loads(text, skip_json_loads=True))
    except (ValueError, RecursionError):
        return None


def _clean(value: Any) -> Any:
    """Replace lone surrogates, which no file or database can store."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
