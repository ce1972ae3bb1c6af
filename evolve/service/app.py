"""One application of a workspace for many: the REST API and MCP over streamable HTTP, both behind tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version as installed

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from evolve.config.model import Config
from evolve.integrations.client_limits import TooManyCalls
from evolve.integrations.client_session import ClientSession
from evolve.integrations.mcp_server import make_guarded
from evolve.loop.assembly import open_store
from evolve.loop.runs import MCP
from evolve.service.access import CALLER, Guard, refusal
from evolve.service.api import router
from evolve.service.callers import Callers, Forbidden
from memory.errors import BadInput, ConflictError, EvolveError, NotFound

STATUS = {NotFound: 404, TooManyCalls: 429, BadInput: 400, Forbidden: 403, ConflictError: 409}


def create_app(config: Config) -> FastAPI:
    """Return the application of a workspace (ASGI), which opens its store and closes it when it ends."""
    store = open_store(config, owner=False)
    callers = Callers(config, store)

    def visit() -> ClientSession:
        caller = callers.caller(CALLER.get())
        caller.require("read")
        return callers.opened(caller, MCP)

    tools = make_guarded(visit)
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
    made.add_middleware(Guard, store=store)
    for kind in (EvolveError, RequestValidationError, HTTPException):
        made.add_exception_handler(kind, _complain)
    return made


async def _complain(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, HTTPException):
        return refusal(error.status_code, "HTTPException", str(error.detail))
    if isinstance(error, RequestValidationError):
        said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return refusal(422, "BadInput", said)
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 409)
    return refusal(status, type(error).__name__, str(error))
