"""Recognise a tool that reports its failure in words: it returns an error text where others raise.

Many tools catch their own exceptions so that the agent reads a sentence. Taken as an answer, such a failure would teach
nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any

_OPENS = re.compile(r"\s*(?:(?i:error|exception)|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception))\s*:\s*\S")
_KEYS = ("error", "errors", "exception")


def reports_error(text: str) -> bool:
    """Tell whether an answer is an error in words: it opens with `Error:` or `SomeError:`, or is JSON with an error."""
    if _OPENS.match(text):
        return True
    if not text.lstrip().startswith("{"):
        return False
    try:
        said: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return any(isinstance(said.get(key), str | dict | list) and said[key] for key in _KEYS)
