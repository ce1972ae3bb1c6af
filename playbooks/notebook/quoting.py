"""Long outside text made to fit: its head and its tail, with what was left out said between them."""

from __future__ import annotations


def middle_out(text: str, limit: int) -> str:
    """Return `text` with its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
