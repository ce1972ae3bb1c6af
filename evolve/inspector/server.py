"""The application: pages put together, errors in words."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import Lifespan

from evolve import inspector
from evolve.config.model import Config
from evolve.inspector.page_context import PageContext
from evolve.inspector.pages import (
    compare_page,
    knowledge_page,
    live_page,
    namespace_page,
    overview_page,
    policies_page,
    record_page,
    retrieval_page,
    review_page,
    rollouts_page,
    runs_page,
    skills_page,
    snapshots_page,
    training_page,
)
from evolve.inspector.rendering import show
from evolve.inspector.security import HEADERS, Guard, Refused
from evolve.loop.assembly import open_store
from memory.errors import BadInput, ConflictError, EvolveError, NotFound

PAGES = (
    overview_page,
    runs_page,
    compare_page,
    knowledge_page,
    record_page,
    snapshots_page,
    skills_page,
    review_page,
    retrieval_page,
    policies_page,
    training_page,
    rollouts_page,
    live_page,
    namespace_page,
)
STATUS = {NotFound: 404, BadInput: 400, Refused: 403, ConflictError: 409}


def create_app(config: Config, *, read_only: bool = False, key: str | None = None, file: Path | None = None) -> FastAPI:
    """Return the inspector of a workspace (ASGI). Raises `NotFound` when there is no workspace.

    `key` is what the address has to bring once; a new one is drawn where none is given (`app.state.desk.key`).
    """
    with open_store(config, read_only=True):
        pass
    store = open_store(config, read_only=read_only, owner=False)
    desk = PageContext(config, store, key or secrets.token_urlsafe(24), read_only, file.resolve() if file else None)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        with store:
            yield

    made = unguarded(desk, lifespan)
    made.add_middleware(Guard, key=desk.key, tickets=desk.tickets)
    return made


def unguarded(desk: PageContext, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    """Return the pages over an open store, for who guards them: `scope["desk"]` is what one request may do."""
    made = FastAPI(title="evolve", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    made.state.desk = desk
    made.mount("/static", StaticFiles(directory=str(files(inspector) / "static")), name="static")
    for page in PAGES:
        made.include_router(page.router)
    for kind in (EvolveError, RequestValidationError, HTTPException):
        made.add_exception_handler(kind, _complain)
    made.add_exception_handler(Exception, _broken)
    return made


async def _broken(request: Request, error: Exception) -> HTMLResponse:
    """Return what is said of a bug; it flies on, to the log of the server."""
    text = f"This page broke ({type(error).__name__}); the terminal that serves it says where."
    page = show(request, "error.html", {"status": 500, "text": text}, status=500)
    page.headers.update(HEADERS)  # the guard stands further inside
    return page


async def _complain(request: Request, error: Exception) -> HTMLResponse:
    """Return an error as a page: what was wrong, and where to go on."""
    if isinstance(error, HTTPException):
        status, text = error.status_code, "There is no such page." if error.status_code == 404 else error.detail
    elif isinstance(error, RequestValidationError):
        status, text = 422, "; ".join(f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors())
    else:
        status, text = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 409), str(error)
    return show(request, "error.html", {"status": status, "text": text}, status=status)
