"""Tell which format a playbook file of others is in, by what stands in it."""

from __future__ import annotations

import json
import re
from typing import Any

from memory.errors import BadInput
from playbooks.formats.entry import LABEL
from playbooks.formats.json import FORMAT
from playbooks.formats.markdown import MARK

_ACE = re.compile(rf"^\[\s*{LABEL}\s*\]", re.MULTILINE)
_ITEM = re.compile(rf"^{MARK} \S", re.MULTILINE)


def detect(text: str) -> str:
    """Return `json`, `kayba`, `ace` or `markdown`. Raises `BadInput` for a text that is none of them."""
    if text.lstrip().startswith("{"):
        return _json(text)
    if _ACE.search(text):
        return "ace"
    if _ITEM.search(text):
        return "markdown"
    raise BadInput(
        "no playbook was recognised: expected JSON, lines like `[slug-00001] text`, or a Markdown list; name the "
        "format with --format (`ace` takes every line as a bullet)"
    )


def _json(text: str) -> str:
    try:
        book: dict[str, Any] = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"it begins like JSON and is none: {error}; mend it, or name the format with --format") from None
    if book.get("format") == FORMAT:
        return "json"
    if {"skills", "bullets"} & set(book):
        return "kayba"
    raise BadInput(f"JSON with the keys {', '.join(sorted(book)) or 'none'} is no playbook that is known; see --format")
