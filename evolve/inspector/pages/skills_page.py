"""Skills: the functions that were learned, which calls which, how often they were used and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from evolve.inspector.page_context import At, PageContext
from evolve.inspector.pager import Paging
from evolve.inspector.pages.knowledge_page import IN_USE, ROWS, STATUSES, Asked, Wanted, screen
from evolve.inspector.rendering import show
from memory import paging
from memory.journal import ALL
from memory.records import Record
from skills.library import Library
from skills.record import Skill

router = APIRouter()

MOST = 200
"""Lines of the drawn graph."""


@dataclass(frozen=True)
class Node:
    """One line of the graph: a skill below the one that calls it."""

    depth: int
    name: str
    record_id: str
    mark: str


@router.get("/skills")
def skills(request: Request, desk: At, asked: Wanted) -> HTMLResponse:
    """List the skills."""
    return show(request, "skills.html", listed(desk, asked))


def listed(desk: PageContext, asked: Asked, size: int = ROWS) -> dict[str, Any]:
    """Return a screen of skills, and the graph of those in use."""
    found, total = screen(desk, Skill.kind, asked, size)
    return {
        "asked": asked,
        "statuses": tuple(STATUSES),
        "records": found,
        "paging": Paging(asked.page, size, total),
        "graph": list(islice(graph(Library(_in_use(desk))), MOST)),
        "enabled": desk.config.skills.enabled,
        "any": total or any(paging.counts(desk.store.journal, desk.namespace).get(Skill.kind, {}).values()),
    }


def _in_use(desk: PageContext) -> tuple[Record[Skill], ...]:
    wanted = paging.Wanted(desk.namespace, (Skill.kind,), STATUSES[IN_USE], order="oldest")
    return desk.store.reader.load(paging.records(desk.store.journal, wanted, limit=ALL)[0])


def graph(library: Library) -> Iterator[Node]:
    """Yield who calls whom as lines of a tree, from those that none calls; skills that call none are left out."""
    records = {record.payload.name: record for record in library.records}
    needs = {name: record.payload.requires for name, record in records.items()}
    tops = [name for name in needs if needs[name] and not library.required_by(name)]
    for name in tops:
        yield from _below(name, needs, records, ())


def _below(
    name: str, needs: Mapping[str, Sequence[str]], records: Mapping[str, Record[Skill]], above: tuple[str, ...]
) -> Iterator[Node]:
    mark = "in a circle" if name in above else "" if name in needs else "not in use"
    node = Node(len(above), name, records[name].id if name in records else "", mark)
    below = () if mark else needs[name]
    yield node
    for callee in below:
        yield from _below(callee, needs, records, (*above, name))
