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
MAX_TAILS = 6
MAX_REPAIR = 40_000
"""Longest span handed to json-repair, in characters."""
SCAN_BUDGET = 400_000
"""Brackets, commas and strings that may be looked at in vain, after braces that never close."""

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
    budget = SCAN_BUDGET
    start = text.find("{")
    while start >= 0 and budget > 0:
        end, cuts, cost = _balance(text, start, _TO_END)
        if not end:
            end, _, more = _balance(text, start, _STRAY_QUOTE)
            budget -= cost + more
        if end:
            found.append(Span(text[start:end]))
        else:
            tails += [Span(text[start:cut].rstrip().removesuffix("```"), closed=False) for cut in cuts]
        start = text.find("{", end or start + 1)
    return tails[:MAX_TAILS] + found[: -MAX_SPANS - 1 : -1]


def _balance(text: str, start: int, tokens: re.Pattern[str]) -> tuple[int, tuple[int, ...], int]:
    """Return (end of the span that opens at `start`, or 0; where to cut an unclosed one, best first; tokens read)."""
    stack: list[tuple[str, int, int]] = []
    """Open brackets: which, end of it, its last comma."""
    last = count = 0
    for count, token in enumerate(tokens.finditer(text, start)):
        mark, last = token.group(), token.end()
        if mark in _CLOSE:
            stack.append((mark, last, 0))
            if len(stack) > MAX_DEPTH:
                return 0, (), count
        elif mark == ",":
            stack[-1] = (*stack[-1][:2], token.start())
        elif mark in ("}", "]"):
            if _CLOSE[stack.pop()[0]] != mark:
                return 0, (len(text),), count
            if not stack:
                return last, (), count
    return 0, _cuts(stack, len(text), whole=not text[last:].strip()), count


def _cuts(stack: list[tuple[str, int, int]], end: int, *, whole: bool) -> tuple[int, ...]:
    """Return where to cut a truncated text: before the array element that was cut off, if a whole one stands before it,
    else nowhere; and, should that not validate, before the last incomplete member of ever outer brackets."""
    commas = [comma for bracket, _, comma in stack if bracket == "[" and comma]
    element_is_whole = whole and stack[-1][0] == "["
    first = commas[-1] if commas and not element_is_whole else end
    return (first, *(comma or opened for _, opened, comma in stack[: -MAX_TAILS // 2 - 1 : -1]))


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
