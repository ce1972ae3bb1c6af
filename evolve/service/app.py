"""One application of a workspace for many: REST and MCP for agents, pages for people, all of it behind tokens."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version as installed
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from evolve.config.model import Config
from evolve.inspector.page_context import PageContext
from evolve.inspector.security import App, Receive, Scope, Send
from evolve.inspector.server import unguarded
from evolve.integrations.client_limits import TooManyCalls
from evolve.integrations.mcp_server import make_guarded
from evolve.loop.assembly import open_store
from evolve.service.access import ALIVE, CALLER, MCP_PATH, Guard, refusal
from evolve.service.api import router
from evolve.service.browsers import Browsers
from evolve.service.callers import Callers, Forbidden
from memory.errors import BadInput, ConflictError, EvolveError, JournalError, NotFound
from memory.store import Store

AGENTS = ("/api/", MCP_PATH, ALIVE)
"""Beginnings of paths that answer to `Authorization` headers; all others are pages."""
STATUS = {NotFound: 404, TooManyCalls: 429, BadInput: 400, Forbidden: 403, ConflictError: 409, JournalError: 503}
"""The first kind that an error is of counts: a `ConflictError` is a `JournalError` too."""


class Doors:
    """Gives agents the API and people the pages (ASGI)."""

    def __init__(self, agents: App, people: App) -> None:
        self._agents, self._people = agents, people

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        for_people = scope["type"] == "http" and not scope["path"].startswith(AGENTS)
        await (self._people if for_people else self._agents)(scope, receive, send)


def create_app(config: Config, file: Path | None = None) -> Doors:
    """Return the application of a workspace (ASGI), which opens its store and closes it when it ends.

    `file`: the evolve.toml that was named; None = the nearest one.
    """
    store = open_store(config, owner=False)
    desk = PageContext(config, store, secrets.token_urlsafe(24), read_only=True, file=file.resolve() if file else None)
    return Doors(_for_agents(config, store), Browsers(unguarded(desk), desk))


def _for_agents(config: Config, store: Store) -> FastAPI:
    callers = Callers(config, store)

    tools = make_guarded(lambda: callers.visit(CALLER.get()))
    over_http = tools.streamable_http_app()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        with store:
            try:
                async with tools.session_manager.run():
                    yield
            finally:
                await callers.close()

    made = FastAPI(
        title="evolve",
        version=installed("evolve-agents"),
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        lifespan=lifespan,
    )
    made.state.callers = callers
    made.include_router(router)
    made.router.routes.extend(over_http.routes)
    made.add_middleware(Guard, store=store, admit=callers.admit_visit)
    for kind in (EvolveError, RequestValidationError, HTTPException):
        made.add_exception_handler(kind, _complain)
    made.add_exception_handler(Exception, _broken)
    return made


async def _broken(_: Request, error: Exception) -> JSONResponse:
    """Return what is said of a bug; it flies on, to the log of the server."""
    return refusal(500, type(error).__name__, "the server broke; the terminal of `evolve serve` says where")


async def _complain(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, HTTPException):
        return refusal(error.status_code, "HTTPException", str(error.detail))
    if isinstance(error, RequestValidationError):
        said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return refusal(422, "BadInput", said)
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 409)
    return refusal(status, type(error).__name__, str(error))
