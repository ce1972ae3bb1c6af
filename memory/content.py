"""Text by hash: canonical JSON bodies, cleaned of secrets before they are hashed and stored."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from memory.redact import redact, redact_named


def clean(value: Any) -> Any:
    """Return a JSON value with secrets redacted and unstorable characters (lone surrogates, NUL) replaced."""
    if isinstance(value, str):
        if not value.isascii():
            value = value.encode("utf-8", "replace").decode("utf-8")
        return redact(value.replace("\x00", "�"))
    if isinstance(value, dict):
        return {str(clean(key)): redact_named(str(key), clean(item)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def canonical(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, UTF-8 kept."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(body: str) -> str:
    """Return the sha256 of a body in hexadecimal."""
    return hashlib.sha256(body.encode("utf-8")).hexdigest()
