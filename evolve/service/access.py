"""Authenticate agents by the token of each request, looked up anew.

The guard stands before all that answers agents, so what is added behind it is behind a token too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse

from evolve.inspector.security import App, Receive, Scope, Send
from evolve.integrations.client_limits import TooManyCalls
from evolve.integrations.mcp_server import belongs_to
from evolve.service.access_tokens import Token, verified
from memory.errors import EvolveError, JournalError
from memory.store import Store

MCP_PATH = "/mcp"
ALIVE = "/healthz"
"""Answers "ok" to anybody: what a proxy or an orchestrator looks at."""
BODY = 4 << 20
"""Bytes of a request's body, at most."""
_STATUS = {TooManyCalls: 429, JournalError: 503}
"""What is answered where a token cannot be let in, or not be looked up; else 403."""
CALLER: ContextVar[Token] = ContextVar("caller")
"""The token of the request under way, also for sessions that it begins."""


class Guard:
    """Stands before the application (ASGI)."""

    def __init__(self, app: App, store: Store, admit: Callable[[Token], None]) -> None:
        """`admit` raises an `EvolveError` where a token may begin no MCP session."""
        self._app, self._store, self._admit = app, store, admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its token, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "there is no WebSocket here"})
        elif scope["path"] == ALIVE:
            await PlainTextResponse("ok")(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        kind, _, given = headers.get("authorization", "").partition(" ")
        try:
            bearer = given.strip() if kind.lower() == "bearer" else ""
            token = await asyncio.to_thread(verified, self._store, bearer)
            if token is not None and scope["path"] == MCP_PATH and "mcp-session-id" not in headers:
                self._admit(token)
        except EvolveError as error:
            status = next((code for each, code in _STATUS.items() if isinstance(error, each)), 403)
            await refusal(status, type(error).__name__, str(error))(scope, receive, send)
            return
        if token is None:
            why = "give a valid token: `Authorization: Bearer evolve_...` (`evolve tokens add` makes one)"
            await refusal(401, "Unauthorized", why, {"www-authenticate": "Bearer"})(scope, receive, send)
            return
        try:
            read = await whole(headers, receive)
        except HTTPException as error:
            await refusal(error.status_code, "HTTPException", str(error.detail))(scope, receive, send)
            return
        belongs_to(scope, token.id)
        known = CALLER.set(token)
        try:
            await self._app(scope, read, send)
        finally:
            CALLER.reset(known)


def refusal(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error as the API gives it."""
    return JSONResponse({"error": {"type": kind, "message": message}}, status, headers)


async def whole(headers: Headers, receive: Receive) -> Receive:
    """Read a body, and return what hands it on in one message: an application may make anything of an error in reading.

    Of a client that leaves before the end only that it left is handed on.
    Raises an `HTTPException` for one that is too large, by what its headers say or by what has come.
    """
    if int(headers.get("content-length", 0)) > BODY:
        raise _too_large()
    part, body = bounded(receive), bytearray()
    last = {"more_body": True}
    while last.get("more_body"):
        last = await part()
        body += last.get("body", b"")
    left = [last if last["type"] == "http.disconnect" else {"type": "http.request", "body": bytes(body)}]

    async def again() -> MutableMapping[str, Any]:
        return left.pop() if left else await receive()

    return again


def bounded(receive: Receive) -> Receive:
    """Return what hands on the parts of a body. It raises an `HTTPException` before it has handed on too many."""
    read = 0

    async def part() -> MutableMapping[str, Any]:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > BODY:
            raise _too_large()
        return message

    return part


def _too_large() -> HTTPException:
    return HTTPException(413, f"got a body of more than {BODY:,} bytes; send less")
