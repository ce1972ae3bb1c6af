"""Lets several runs take turns, so that whatever changes on the machine meanwhile meets all of them alike."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from functools import partial

from evolve.loop.state import Turn


class Turns:
    """One run works at a time; at each `turn()` it hands on to the next in order and waits until it is asked again."""

    def __init__(self, names: Iterable[str]) -> None:
        self._order = deque(names)
        self._asked = {name: asyncio.Event() for name in self._order}
        self._ask()

    @asynccontextmanager
    async def of(self, name: str) -> AsyncGenerator[Turn]:
        """Wait for the first turn of a run, give what it awaits between its batches, and let it leave at the end."""
        try:
            await self._asked[name].wait()
            yield partial(self._next, name)
        finally:
            self._order.remove(name)
            self._ask()

    async def _next(self, name: str) -> None:
        self._asked[name].clear()
        self._order.rotate(-1)
        self._ask()
        await self._asked[name].wait()

    def _ask(self) -> None:
        if self._order:
            self._asked[self._order[0]].set()
