"""Retrieval: type what a task would say, see what its prompt would hold, why, and what the budget cut."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from evolve.episode.injection import choose_core, recall_for, sought
from evolve.episode.prompting import knowledge
from evolve.episode.skill_runtime.shown_skills import text_kinds
from evolve.inspector.page_context import At, PageContext
from evolve.inspector.rendering import show
from evolve.inspector.token_counter import TokenCounter
from memory.records import RecallQuery, Record, Task
from playbooks.core import core_records
from playbooks.kinds.exemplar import Exemplar, shown_text

router = APIRouter()

PARTS = ("lexical", "vector", "utility", "rrf")
"""Parts of a score, as recall names them."""


@router.get("/retrieval")
def retrieval(request: Request, desk: At, q: Annotated[str, Query(max_length=4000)] = "") -> HTMLResponse:
    """Show what a task would be shown."""
    return show(request, "retrieval.html", {"q": q, "parts": PARTS} | (recalled(desk, q) if q.strip() else {}))


def recalled(desk: PageContext, text: str) -> dict[str, Any]:
    """Return what a task with these words is shown now, in which order and at what cost, and what is cut."""
    reader = TokenCounter(desk.config.policy)
    view = desk.store.view(desk.namespace)
    core = core_records(choose_core(desk.config, view, reader, 0), view)
    shown = recall_for(desk.store, desk.config, sought(Task(id="inspected", instruction=text)), core, reader)
    found = {record.id: record for record in shown.records}
    rules = knowledge(shown.core, shown.recalled, reader.profile)
    return {
        "rows": [
            {"why": each, "record": found[each.record_id], "tokens": _cost(found[each.record_id], reader)}
            for each in shown.injected
        ],
        "cut": _cut(desk, text, set(found), reader),
        "rules": "\n\n".join(filter(None, (rules, shown_text(shown.exemplars)))),
        "tokens": reader.count_tokens(rules) + sum(_cost(record, reader) for record in shown.exemplars),
        "counted": reader.exact,
        "budget": desk.config.playbook.token_budget,
    }


def _cut(desk: PageContext, text: str, shown: set[str], reader: TokenCounter) -> list[dict[str, Any]]:
    """Return what fits the words as well and is not shown: no room, or refuted by what contradicts it."""
    query = RecallQuery(
        text=text,
        namespace=desk.namespace,
        kinds=text_kinds(desk.config),
        k=desk.config.memory.recall_k,
    )
    more = desk.store.recall(query) if query.k else ()
    return [{"item": each, "tokens": _cost(each.record, reader)} for each in more if each.record.id not in shown]


def _cost(record: Record[Any], reader: TokenCounter) -> int:
    if record.kind == Exemplar.kind:
        return reader.count_tokens(shown_text([record]))
    return reader.count_tokens(knowledge((), [record], reader.profile))
