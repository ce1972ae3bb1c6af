"""Choose the namespace that the pages show, kept in a cookie of each browser."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse

from evolve.inspector.page_context import At, namespace_cookie
from evolve.inspector.rendering import PAGES, served

router = APIRouter()


@router.get("/namespace")
def choose(request: Request, desk: At, name: str, back: str = "") -> RedirectResponse:
    """Show a namespace from now on, and go on to page `back`. Raises `NotFound` for a namespace that is not there."""
    chosen = desk.within(name).namespace
    answer = RedirectResponse(served(back if back in PAGES else "overview"), 303)
    answer.set_cookie(namespace_cookie(request), quote(chosen, safe=""), httponly=True, samesite="lax")
    return answer
