"""Tells open pages that the journal grew (server-sent events), so that they show a run while it is on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from evolve.inspector.page_context import At, PageContext

router = APIRouter()

EVERY = 0.5
"""Seconds between two looks at the journal."""
SILENCE = 15.0
"""Seconds after which something is sent anyway, so that a closed page is noticed."""


@router.get("/live")
async def live(request: Request, desk: At) -> StreamingResponse:
    """Send the journal's position whenever it changed."""
    return StreamingResponse(_changes(request, desk), media_type="text/event-stream")


async def _changes(request: Request, desk: PageContext) -> AsyncGenerator[str]:
    seen, quiet = await asyncio.to_thread(desk.store.journal.position), 0.0
    yield "retry: 2000\n\n"
    while not await request.is_disconnected():
        await asyncio.sleep(EVERY)
        quiet += EVERY
        position = await asyncio.to_thread(desk.store.journal.position)
        if position != seen:
            seen, quiet = position, 0.0
            yield f"event: journal\ndata: {position}\n\n"
        elif quiet >= SILENCE:
            quiet = 0.0
            yield ": still here\n\n"
