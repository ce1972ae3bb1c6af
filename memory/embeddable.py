"""Checks that every embedder makes of a text before embedding it."""

from __future__ import annotations

from collections.abc import Sequence

from memory.errors import BadInput


def check_visible(text: str) -> None:
    """Raise `BadInput` for blank text."""
    if not text.strip():
        raise BadInput(f"got blank text {text[:20]!r} to embed; expected at least one visible character")


def tokenizable(texts: Sequence[str]) -> list[str]:
    """Return texts that tokenizers take: they refuse lone surrogates. Raises `BadInput` for blank text."""
    for text in texts:
        check_visible(text)
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
