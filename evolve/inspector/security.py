"""Access control: browsers on this machine that know the key, and forms that our own pages sent.

Every answer forbids scripts, styles, frames and connections from elsewhere, and scripts inside a page: learned text
that slipped through the escaping could still not run. The key keeps out other users of the machine; the `Host` check
keeps out pages of other sites that point their name at this machine.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from memory.errors import EvolveError

HOSTS = ("127.0.0.1", "localhost", "[::1]")
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all, browsers say `Origin: null` on our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
SAFE = ("GET", "HEAD")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Refused(EvolveError):
    """A request that may not change anything."""


class Guard:
    """Stands before the pages (ASGI)."""

    def __init__(self, app: App, key: str, tickets: set[str]) -> None:
        """Take what the cookie holds, and keys that are spent by the first who brings them."""
        self._app, self._key, self._tickets = app, key, tickets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket: no page uses one
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "there is no WebSocket here"})
            return

        closed = closing(send, scope["path"])
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not _local(headers.get("host", "")):
            await _answer(closed, 403, "This page answers on 127.0.0.1 and localhost alone.")
        elif arriving := self._arriving(scope):
            await _answer(closed, 303, "", [("location", arriving), ("set-cookie", self._cookie(headers["host"]))])
        elif refusal := _foreign(scope, headers):
            await _answer(closed, 403, refusal)
        elif not self._known(headers):
            await _answer(closed, 403, "Open the whole address that `evolve ui` printed: it holds a key.")
        else:
            await self._app(scope, receive, closed)

    def _arriving(self, scope: Scope) -> str:
        """Return where to go without the key in the address, empty where it brings none or a wrong one."""
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        given = query.pop("key", "")
        if scope["method"] not in SAFE or not (self._is_key(given) or given in self._tickets):
            return ""
        self._tickets.discard(given)
        return "/" + quote(scope["path"].lstrip("/\\")) + (f"?{urlencode(query)}" if query else "")

    def _is_key(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._key.encode())

    def _cookie(self, host: str) -> str:
        return f"{cookie_name(host)}={self._key}; Path=/; HttpOnly; SameSite=Strict"

    def _known(self, headers: MutableMapping[str, str]) -> bool:
        """Look for our cookie by hand: those of other programs on this host come along, in whatever form."""
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        return any(name == cookie_name(headers["host"]) and self._is_key(value) for name, _, value in pairs)


def closing(send: Send, path: str) -> Send:
    """Return what sends an answer with the headers that forbid what no page of ours needs."""

    async def closed(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = {name for name, _ in message["headers"]}
            more = [(n.encode(), v.encode()) for n, v in _headers(path).items() if n.encode() not in given]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return closed


def _local(host: str) -> bool:
    return host in HOSTS or host.rpartition(":")[0] in HOSTS


def _foreign(scope: Scope, headers: MutableMapping[str, str]) -> str:
    """Return why a request is not from a page of ours, empty where it may be."""
    if scope["method"] not in SAFE and headers.get("origin") != f"http://{headers['host']}":
        return "Only the page itself may change something."
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "Another site sent you here; open the address by hand."
    return ""


def cookie_name(host: str, what: str = "evolve") -> str:
    """Return the name of a cookie: one for each port, since cookies do not tell ports apart."""
    return f"{what}_{host.rpartition(':')[2] if ':' in host else 80}"


def _headers(path: str) -> dict[str, str]:
    return HEADERS | {"cache-control": "max-age=3600" if path.startswith("/static/") else "no-store"}


async def _answer(send: Send, status: int, text: str, headers: list[tuple[str, str]] | None = None) -> None:
    more = [(name.encode(), value.encode()) for name, value in headers or ()]
    plain = [(b"content-type", b"text/plain; charset=utf-8"), *more]
    await send({"type": "http.response.start", "status": status, "headers": plain})
    await send({"type": "http.response.body", "body": text.encode()})
