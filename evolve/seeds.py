"""Everything random in a run is derived from its seed by name, so that order and concurrency decide nothing."""

from __future__ import annotations

import hashlib


def seed_for(*parts: object) -> int:
    """Return a seed in [0, 2**31) that depends on the parts alone, in every process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest) >> 1


def id_for(prefix: str, *parts: object) -> str:
    """Return a stable id: the same parts name the same thing when a run is resumed."""
    return f"{prefix}-{hashlib.blake2b(repr(parts).encode(), digest_size=10).hexdigest()}"
