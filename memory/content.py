"""Text by hash: canonical JSON bodies, cleaned of secrets before they are hashed and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from math import isfinite
from typing import Any

from memory.detectors import DETECTORS, Detector
from memory.redact import REDACTED, redact_named, suspects

_ODD = ("\\u0000", "NaN", "Infinity")
"""What stands in a body that may hold what no database reads: NUL, and numbers that are no JSON."""
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def clean(value: Any) -> Any:
    """Return a JSON value with secrets redacted and unstorable characters (lone surrogates, NUL) replaced.

    A value in which there is nothing to replace is returned as it is.
    """
    try:
        body = canonical(value)
        body.encode("utf-8")
    except (TypeError, ValueError):  # odd keys, a lone surrogate
        return _cleaned(value, DETECTORS)
    found = suspects(body)
    return _cleaned(value, found) if found or any(odd in body for odd in _ODD) else value


def _cleaned(value: Any, among: Sequence[Detector]) -> Any:
    """Return a value cleaned of what these detectors find, those that may find something in all of it."""
    if isinstance(value, str):
        if not value.isascii():
            value = value.encode("utf-8", "replace").decode("utf-8")
        value = value.replace("\x00", "�")
        for detector in among:
            value = detector.redact(value)
        return value
    if isinstance(value, dict):
        return {str(_cleaned(key, among)): redact_named(str(key), _cleaned(item, among)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item, among) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def holds_secret(name: str, value: Any) -> bool:
    """Tell whether `clean` takes a secret out of a JSON value that is kept under a name."""
    given = canonical({name: value})
    return canonical(clean({name: value})).count(REDACTED) > given.count(REDACTED)


def canonical(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, UTF-8 kept."""
    return _ENCODER.encode(value)


def clean_body(value: Any) -> str:
    """Return the canonical text of a value, cleaned: what `Journal.put_body` takes. To be made before a transaction."""
    return canonical(clean(value))


def digest(body: str) -> str:
    """Return the sha256 of a body in hexadecimal."""
    return hashlib.sha256(body.encode("utf-8")).hexdigest()
