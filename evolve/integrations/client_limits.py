"""Limits of one client: the sizes of arguments, looked at before anything reads them, and calls a minute.

The number of MCP sessions and how long one may idle are bounded by the package `mcp`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from memory.errors import BadInput

TEXTS: Mapping[str, int] = {
    "query": 10_000, "task": 50_000, "name": 200, "feedback": 10_000, "lesson": 2_000, "section": 200, "when": 1_000,
    "content": 50_000, "reason": 2_000, "kinds": 50, "cited": 200,
    "action": 100_000, "observation": 100_000, "error": 100_000,
}  # fmt: skip
"""Argument, or field of a step -> characters of one text, at most."""
LISTS: Mapping[str, int] = {"kinds": 20, "cited": 200, "steps": 500}
EPISODE = 2_000_000
"""Characters of all steps of an outcome together."""
CALLS, PROPOSALS = 600, 60
"""Calls and proposals of one session within a minute; all sessions of a server together may make four times as many."""
SESSIONS = 4


class TooManyCalls(BadInput):
    """A client that is to wait."""


class RateLimit:
    """At most `most` calls at once, refilled evenly within a minute."""

    def __init__(self, what: str, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._most, self._clock = what, most, clock
        self._left, self._at = float(most), clock()

    def take(self) -> None:
        """Count a call. Raises `TooManyCalls` with the seconds to wait."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._most / 60)
        self._at = now
        if self._left < 1:
            wait = (1 - self._left) * 60 / self._most
            raise TooManyCalls(f"got more than {self._most} {self._what} within a minute; wait {wait:.1f} seconds")
        self._left -= 1


class Limits:
    """The calls of one session; `shared` are those of all sessions of the server."""

    def __init__(self, shared: Limits | None = None) -> None:
        times = 1 if shared else SESSIONS
        self._shared = shared
        self._calls = RateLimit("calls", CALLS * times)
        self._proposals = RateLimit("proposals", PROPOSALS * times)

    def check(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Count a call and look at the sizes of what it brings. Raises `BadInput`."""
        self.count(tool)
        check_sizes(arguments)

    def count(self, tool: str) -> None:
        """Count a call. Raises `TooManyCalls`."""
        self._calls.take()
        if tool == "propose":
            self._proposals.take()
        if self._shared:  # last: what a session is refused anyway takes nothing from the others
            self._shared.count(tool)


def check_sizes(arguments: Mapping[str, Any]) -> None:
    """Look at the sizes of what a call brings. Raises `BadInput`."""
    for name, value in arguments.items():
        _check_size(name, value)
    steps = arguments.get("steps", ())
    total = sum(len(text) for step in steps for text in (step.action, step.observation, step.error or ""))
    if total > EPISODE:
        raise BadInput(f"got steps of {total:,} characters, expected at most {EPISODE:,}; shorten what came back")


def _check_size(name: str, value: Any) -> None:
    if isinstance(value, str) and len(value) > TEXTS[name]:
        raise BadInput(f"got {name} of {len(value):,} characters, expected at most {TEXTS[name]:,}; send less of it")
    if isinstance(value, list | tuple):
        if len(value) > LISTS[name]:
            raise BadInput(f"got {len(value):,} {name}, expected at most {LISTS[name]:,}; send fewer")
        for each in value:
            _check_size(name, each)
    if name == "steps" and not isinstance(value, list | tuple):
        for field in ("action", "observation", "error"):
            _check_size(field, getattr(value, field))
