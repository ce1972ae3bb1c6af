"""Snapshots: every state of the knowledge that was frozen, what differs between two, and the way back to one."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from evolve.inspector.page_context import At, Form, PageContext
from evolve.inspector.pager import Number, Paging
from evolve.inspector.pages.record_page import diff, said, told
from evolve.inspector.rendering import served, show
from evolve.lookup import find_snapshot
from memory import paging
from memory.snapshots import address

router = APIRouter()

ROWS = 25
MOST = 200
"""Records of a difference that are shown."""


@router.get("/snapshots")
def snapshots(request: Request, desk: At, page: Number = 1) -> HTMLResponse:
    """List the snapshots, the latest first."""
    return show(request, "snapshots.html", listed(desk, page))


@router.get("/diff")
def difference(request: Request, desk: At, a: str, b: str = "") -> HTMLResponse:
    """Show what changed from snapshot `a` to `b`, or to what is live now."""
    return show(request, "diff.html", compared(desk, a, b))


@router.post("/snapshots/rollback")
def rollback(desk: At, form: Form) -> RedirectResponse:
    """Make a snapshot the live state again; what is live now is frozen first, so that this can be undone."""
    name = find_snapshot(desk.store, desk.namespace, form.get("snapshot", ""))
    before = address(desk.store.snapshot(desk.namespace))
    commit = desk.store.rollback(desk.namespace, name, actor=desk.actor)
    desk.said.append(f"{told(commit)} What was live before is snapshot {_short(before)}.")
    return RedirectResponse(served("snapshots"), 303)


def listed(desk: PageContext, page: int = 1, size: int = ROWS) -> dict[str, Any]:
    """Return a screen of snapshots."""
    rows, total = paging.snapshots(desk.store.journal, desk.namespace, offset=(page - 1) * size, limit=size)
    return {"rows": [row | {"short": _short(row["name"])} for row in rows], "paging": Paging(page, size, total)}


def compared(desk: PageContext, a: str, b: str = "") -> dict[str, Any]:
    """Return what was added, removed and changed. Raises `NotFound` and `BadInput` as `find_snapshot`."""
    names = [find_snapshot(desk.store, desk.namespace, a), find_snapshot(desk.store, desk.namespace, b) if b else None]
    before, after = ({r.id: r for r in desk.store.view(desk.namespace, name).records()} for name in names)
    added = [record for key, record in after.items() if key not in before]
    removed = [record for key, record in before.items() if key not in after]
    changed = [
        (before[key], record)
        for key, record in after.items()
        if key in before and before[key].content_hash != record.content_hash
    ]
    return {
        "a": _short(names[0] or ""),
        "b": _short(names[1]) if names[1] else "now",
        "added": added[:MOST],
        "removed": removed[:MOST],
        "changed": [(old, new, diff(said(old), said(new))) for old, new in changed[:MOST]],
        "more": sum(max(0, len(each) - MOST) for each in (added, removed, changed)),
    }


def _short(name: str) -> str:
    snapshot, _, position = name.partition("@")
    return f"{snapshot[:12]}@{position}"
