"""How this project's servers on 127.0.0.1 treat connections: HTTP alone, so many, and each has to say what it wants."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 10.0
"""Seconds in which a client must have sent a whole request; afterwards the connection is closed."""
CONNECTIONS = 200
"""Connections at once; what comes beyond them is answered 503."""


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that waits for a request, and for its body, no longer than `PATIENCE`."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read what came, and wait on if it is not all."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._stop()
        super().connection_lost(exc)

    def _waits(self) -> bool:
        """Tell whether it is the client's turn."""
        return not self.cycle or self.cycle.response_complete or self.cycle.more_body

    def _watch(self) -> None:
        if not self._waits():
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(PATIENCE, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self._waits():
            self.transport.close()


def settings(app: Any, **more: Any) -> uvicorn.Config:
    """Return the settings of a server for an ASGI application."""
    return uvicorn.Config(app, http=ImpatientProtocol, ws="none", limit_concurrency=CONNECTIONS, **more)
