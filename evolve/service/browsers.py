"""The pages of a served workspace, for people: who logs in with a token sees them, and may change what it allows.

The pages show the whole workspace, so they take a token for all namespaces. Scope `read` shows, `review` also decides
on the review page, `admin` changes everything. The cookie is a word that this process knows the token by, and the token
is looked up with every request; forms must come from a page of this server.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import replace
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from evolve.inspector.page_context import PageContext
from evolve.inspector.rendering import render
from evolve.inspector.security import SAFE, App, Receive, Scope, Send, closing, cookie_name
from evolve.service.access import bounded
from evolve.service.access_tokens import EVERYWHERE, Token, verified
from memory.errors import JournalError

VISIT = "evolve_visit"
"""Which cookie holds the word that a browser is known by."""
VISITS = 10_000
"""Log-ins that are known at once."""
LOG_IN = "Log in with a token for all namespaces: `evolve tokens add NAME --scope read --namespace '*'` makes one."


class Browsers:
    """Stands before the pages (ASGI)."""

    def __init__(self, pages: App, desk: PageContext) -> None:
        """Take the pages, and the desk that they would have without us: it should show nothing that may be changed."""
        self._pages, self._desk = pages, desk
        self._visits: OrderedDict[str, str] = OrderedDict()
        self._said: dict[str, list[str]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on with what its sender may do."""
        request = Request(scope, bounded(receive))
        try:
            answer = await self._answer(request)
        except HTTPException as error:  # too large
            answer = _login(str(error.detail), error.status_code)
        except MultiPartException as error:
            answer = _login(f"This is no form: {error.message}", 400)
        except JournalError as error:
            answer = _login(str(error), 503)
        after = closing(send, scope["path"])
        if answer is not None:
            await answer(scope, request.receive, after)
        else:
            await self._pages(scope, request.receive, after)

    async def _answer(self, request: Request) -> Response | None:
        """Return an answer of our own; None where the pages are to answer.

        What is asked for is the path of the scope: that of the URL begins with whatever the client calls this host.
        """
        path, host = str(request.scope["path"]), request.headers.get("host", "")
        if path.startswith("/static/"):
            return None
        if request.method not in SAFE and urlsplit(request.headers.get("origin", "")).netloc != (host or None):
            return _login("Only a page of this server may change something.", 403)
        visit = request.cookies.get(cookie_name(host, VISIT), "")
        token = await asyncio.to_thread(self._who, visit)
        if path == "/login":
            return await self._log_in(request, token)
        if path == "/logout":
            self._visits.pop(visit, None)
            gone = RedirectResponse("/login", 303)
            gone.delete_cookie(cookie_name(host, VISIT))
            return gone
        if token is None or _why_not(token):
            return RedirectResponse("/login", 303)
        request.scope["desk"] = self._desk_of(token, path, visit)
        return None

    def _who(self, visit: str) -> Token | None:
        """Return the valid token that a browser logged in with and did not log out from."""
        return verified(self._desk.store, self._visits.get(visit, ""))

    async def _log_in(self, request: Request, known: Token | None) -> Response:
        if request.method in SAFE:
            return _login(LOG_IN, person=known.name if known else "")
        given = str((await request.form()).get("token", "")).strip()
        token = await asyncio.to_thread(verified, self._desk.store, given)
        why = "This is no token that is valid here." if token is None else _why_not(token)
        if why:
            return _login(f"{why} {LOG_IN}", 403)
        visit = secrets.token_urlsafe(32)
        self._visits[visit] = given
        while len(self._visits) > VISITS:
            self._visits.popitem(last=False)
        let_in = RedirectResponse("/", 303)
        secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
        let_in.set_cookie(
            cookie_name(request.headers["host"], VISIT), visit, httponly=True, samesite="lax", secure=secure
        )
        return let_in

    def _desk_of(self, token: Token, path: str, visit: str) -> PageContext:
        """Return what a page works with for one person, who is known by the word `visit`."""
        may_change = token.may("admin") or (token.may("review") and path.split("/")[1] == "review")
        return replace(
            self._desk,
            key=f"{self._desk.key}{token.id}",
            read_only=not may_change,
            actor=f"token:{token.name}",
            said=self._said.setdefault(token.id, []),
            may_look=lambda: self._who(visit) is not None,
        )


def _why_not(token: Token) -> str:
    """Return why a token opens no page, empty where it does."""
    if token.namespace != EVERYWHERE:
        return f"Token {token.name!r} is for one namespace, and pages show the whole workspace."
    return "" if token.may("read") else f"Token {token.name!r} has no scope 'read'."


def _login(text: str, status: int = 200, person: str = "") -> HTMLResponse:
    return HTMLResponse(render("login.html", {"text": text, "person": person}), status)
