"""Removes secrets from text before it is stored.

What is covered: the formats of `memory.detectors` (private key blocks, tokens of some forty vendors, JSON web tokens,
`Authorization` and API key headers, passwords inside URLs and connection strings, literals assigned to names such as
`api_key`, `client_secret` or `password`, web hooks). What is not covered: anything that does not look like one of these
(a bare password in prose, a custom token format, a secret split over two strings or shown as token ids). This is best
effort, not a guarantee: keep secrets out of prompts. The work is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import Any

from memory.detectors import DETECTORS, NAMED, Detector


def _texts(*, folded: bool) -> tuple[str, ...]:
    found = (sign for each in DETECTORS if each.folded is folded for sign in each.signs if isinstance(sign, str))
    return tuple(dict.fromkeys(found))


REDACTED = "[REDACTED:"
"""Begins what stands in place of a secret."""
_EXACT, _FOLDED = _texts(folded=False), _texts(folded=True)
_PATTERNS = tuple(sign for each in DETECTORS for sign in each.signs if not isinstance(sign, str))
_PASSWORD = re.compile(r"://[^/:@]*:(?!\[REDACTED:)[^/@]*@|(?:password|secret)\s*=(?!\[REDACTED:)")
"""In an address; one that was taken out already is none."""


def _may_hold_secret(text: str) -> bool:
    """Tell whether any detector may find something, much faster than asking each of them."""
    return (
        any(map(text.__contains__, _EXACT))
        or any(map(text.lower().__contains__, _FOLDED))
        or any(pattern.search(text) for pattern in _PATTERNS)
    )


def suspects(text: str) -> tuple[Detector, ...]:
    """Return the detectors that may find something in a text, or in the strings and names of a JSON text."""
    if not _may_hold_secret(text):
        return ()
    lower = text.lower()
    return tuple(detector for detector in DETECTORS if detector.may_find(text, lower))


def redact(text: str) -> str:
    """Return `text` with every recognised secret replaced by `[REDACTED:<what>]`."""
    for detector in suspects(text):
        text = detector.redact(text)
    return text


def redact_named(name: str, value: Any) -> Any:
    """Return a JSON value kept under `name`, redacted when the name says secret and the value is text with a digit."""
    if isinstance(value, str) and len(value) >= 8 and any(c.isdigit() for c in value) and NAMED.search(name):
        return f"{REDACTED}assigned-secret]"
    return value


def holds_password(address: str) -> bool:
    """Tell whether a password stands in the address of a server."""
    return _PASSWORD.search(address) is not None


def without_password(address: str, instead: str) -> str:
    """Return the address of a server as it is. Raises `ValueError` where it holds a password or a key.

    `instead` says where to put it.
    """
    if holds_password(address) or redact(address) != address:
        raise ValueError(f"it holds a password, and settings are kept with every run; {instead}")
    return address
