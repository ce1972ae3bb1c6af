"""Output of a run, cut to a limit with a note, and the shape of its error text."""

from __future__ import annotations

import re

_NOTE = re.compile(r"\n\[output cut: \d+ more characters\]\Z")


class Printed:
    """Collects printed text; beyond `limit` characters it only counts, so a flood costs no memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._kept = 0
        self._cut = 0

    def write(self, text: str) -> None:
        """Keep what still fits of `text`."""
        fits = text[: self._limit - self._kept]
        if fits:
            self._parts.append(fits)
            self._kept += len(fits)
        self._cut += len(text) - len(fits)

    def text(self) -> str:
        """Return the kept text, followed by a note when something was cut."""
        return "".join(self._parts) + _note(self._cut)


def was_cut(text: str) -> bool:
    """Tell whether a text ends in the note that something was cut."""
    return _NOTE.search(text) is not None


def cut(text: str, limit: int) -> str:
    """Return `text`, or its first `limit` characters and a note of how many are missing."""
    return text[:limit] + _note(max(0, len(text) - limit))


def describe(error: BaseException) -> str:
    """Return `Type: message`, or `Type` when there is no message."""
    message = str(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _note(missing: int) -> str:
    return f"\n[output cut: {missing} more characters]" if missing else ""
