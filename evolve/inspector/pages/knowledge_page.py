"""Playbook, notebook, exemplars: what is known, how often it was shown and what came of it; and the prompt it makes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from evolve.episode.injection import choose_core
from evolve.episode.prompting import knowledge
from evolve.gates.scoring import cases
from evolve.inspector.page_context import At, PageContext
from evolve.inspector.pager import Paging
from evolve.inspector.rendering import show
from evolve.inspector.token_counter import TokenCounter
from memory import paging
from memory.errors import BadInput
from memory.paging import Order
from memory.records import RECALLABLE, Frozen, Record, Status
from playbooks.core import core_records
from playbooks.kinds.exemplar import Exemplar

router = APIRouter()

ROWS = 50
IN_USE, ALL = "in use", "all"
STATUSES: dict[str, tuple[str, ...]] = {
    IN_USE: tuple(sorted(RECALLABLE)),
    **{status.value: (status.value,) for status in Status},
    ALL: (),
}
"""What can be chosen -> the statuses it means."""


class Asked(Frozen):
    """Which records a list shows."""

    q: str = Field(default="", max_length=300)
    status: str = IN_USE
    order: Order = "newest"
    page: int = Field(default=1, ge=1, le=1_000_000)


Wanted = Annotated[Asked, Query()]


@router.get("/playbook")
def playbook(request: Request, desk: At, asked: Wanted) -> HTMLResponse:
    """List the bullets."""
    return show(request, "records.html", records(desk, "bullet", asked))


@router.get("/notebook")
def notebook(request: Request, desk: At, asked: Wanted) -> HTMLResponse:
    """List the mistake notes."""
    return show(request, "records.html", records(desk, "note", asked))


@router.get("/exemplars")
def exemplars(request: Request, desk: At, asked: Wanted) -> HTMLResponse:
    """List the exemplars."""
    return show(request, "records.html", records(desk, "exemplar", asked))


@router.get("/prompt")
def prompt(request: Request, desk: At) -> HTMLResponse:
    """Show what stands in every prompt now, and what it costs."""
    return show(request, "prompt.html", rendered(desk))


def records(desk: PageContext, kind: str, asked: Asked, size: int | None = None) -> dict[str, Any]:
    """Return a screen of records of a kind with their worth."""
    size = size or ROWS
    found, total = screen(desk, kind, asked, size)
    return {
        "kind": kind,
        "asked": asked,
        "statuses": tuple(STATUSES),
        "cases": cases(desk.store, desk.config.forget, found),
        "paging": Paging(asked.page, size, total),
        "any": total or any(paging.counts(desk.store.journal, desk.namespace).get(kind, {}).values()),
    }


def screen(desk: PageContext, kind: str, asked: Asked, size: int) -> tuple[tuple[Record[Any], ...], int]:
    """Return the records of a screen, and how many fit in all. Raises `BadInput` for an unknown status."""
    if asked.status not in STATUSES:
        raise BadInput(f"got status {asked.status!r}; expected one of {', '.join(STATUSES)}")
    wanted = paging.Wanted(desk.namespace, (kind,), STATUSES[asked.status], asked.q, asked.order)
    ids, total = paging.records(desk.store.journal, wanted, offset=(asked.page - 1) * size, limit=size)
    return desk.store.reader.load(ids), total


def rendered(desk: PageContext) -> dict[str, Any]:
    """Return the core as the next episode reads it, with its tokens."""
    reader = TokenCounter(desk.config.policy)
    view = desk.store.view(desk.namespace)
    core = core_records(choose_core(desk.config, view, reader, 0), view)
    text = knowledge(core, (), reader.profile)
    bill = [(record, reader.count_tokens(knowledge([record], (), reader.profile))) for record in core]
    return {
        "text": text,
        "bill": bill,
        "tokens": reader.count_tokens(text),
        "counted": reader.exact,
        "budget": desk.config.playbook.token_budget,
        "exemplars": desk.config.exemplars,
        "solved": len(view.records(Exemplar.kind)),
    }
