"""Servers of this project: HTTP alone, a limited number of connections, and a time limit for each request."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from socket import create_server, socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from memory.errors import BadInput

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


def listen(port: int, host: str = "127.0.0.1") -> socket:
    """Return a socket; port 0 = any free one. Raises `BadInput` when the port is taken, or the host is not here."""
    try:
        return create_server((host, port))
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"port {port} of {host} is not free ({why}); choose another: --port 0") from error


def serve(app: Any, at: socket) -> None:
    """Answer until Ctrl-C, which is how a server ends: no error."""
    with suppress(KeyboardInterrupt):
        uvicorn.Server(settings(app, log_level="warning", timeout_graceful_shutdown=1)).run(sockets=[at])
