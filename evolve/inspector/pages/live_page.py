"""Tells open pages that the journal grew or a training wrote figures (server-sent events), so that they show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from evolve.inspector.page_context import At, PageContext
from evolve.training.status import written

router = APIRouter()

EVERY = 0.5
"""Seconds between two looks at the workspace."""
SILENCE = 15.0
"""Seconds after which something is sent anyway, so that a closed page is noticed."""


@router.get("/live")
async def live(request: Request, desk: At) -> StreamingResponse:
    """Send the journal's position whenever it changed, or the figures of a training did.

    It ends where it would send something to somebody who may see the page no longer, since the token was revoked or
    they logged out.
    """
    return StreamingResponse(_changes(request, desk), media_type="text/event-stream")


async def _changes(request: Request, desk: PageContext) -> AsyncGenerator[str]:
    seen, quiet = await asyncio.to_thread(_state, desk), 0.0
    yield "retry: 2000\n\n"
    while not await request.is_disconnected():
        await asyncio.sleep(EVERY)
        quiet += EVERY
        state = await asyncio.to_thread(_state, desk)
        if state == seen and quiet < SILENCE:
            continue
        if not await asyncio.to_thread(desk.may_look):
            return
        yield ": still here\n\n" if state == seen else f"event: journal\ndata: {state[0]}\n\n"
        seen, quiet = state, 0.0


def _state(desk: PageContext) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return the journal's position, and what the trainings have written: rollouts of a training make no events."""
    return desk.store.journal.position(), written(desk.config)
