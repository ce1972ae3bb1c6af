"""Arguments of native tool calls, which models write as JSON text and sometimes write badly."""

from __future__ import annotations

from typing import Any

from policies.parsing import objects

UNPARSED = "_unparsed"
"""Key under which arguments arrive that are no JSON object, so that the tool can answer with an error."""


def parse_arguments(text: str | None) -> dict[str, Any]:
    """Return the arguments; `{}` for none, `{"_unparsed": text}` for text that cannot be recovered."""
    if text is None or not text.strip():
        return {}
    return next(objects(text), {UNPARSED: text})
