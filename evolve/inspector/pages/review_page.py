"""Review: changes that wait for a person, the difference first; accept, reject, edit or defer, one or several."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from evolve.gates import review_queue
from evolve.gates.review_queue import WRITTEN_IN, Proposal
from evolve.inspector.page_context import At, Form, PageContext
from evolve.inspector.pages.record_page import diff, said, told
from evolve.inspector.rendering import served, show
from memory.errors import BadInput, EvolveError
from memory.records import DeltaOp, Op

router = APIRouter()

MOST = 50
"""Changes of a screen."""
SEVERAL = ("accept", "reject")
"""What several changes can be answered at once."""


@router.get("/review")
def review(request: Request, desk: At) -> HTMLResponse:
    """Show what waits."""
    return show(request, "review.html", waiting(desk))


@router.post("/review")
async def ask(request: Request, desk: At, form: Form) -> HTMLResponse:
    """Ask once more before several changes are answered: those that are selected, or all that were shown."""
    answer, _, which = form.get("answer", "").partition(" ")
    names = await _named(request, "picked" if which == "selected" else "shown")
    if answer not in SEVERAL or which not in ("selected", "shown"):
        raise BadInput(f"got {form.get('answer', '')!r}; expected accept or reject, and selected or shown")
    if not names:
        raise BadInput("no change is selected; tick some of them first")
    rows = [_row(desk, each) for each in review_queue.proposals(desk.store, desk.namespace) if str(each.seq) in names]
    return show(request, "several.html", {"answer": answer, "rows": rows})


@router.post("/review/several/{answer}")
async def decide_several(request: Request, desk: At, answer: str, form: Form) -> RedirectResponse:
    """Accept or reject several changes; each is decided by itself, and what could not be done is said."""
    if answer not in SEVERAL:
        raise BadInput(f"got answer {answer!r}; expected one of {', '.join(SEVERAL)}")
    done, problems = 0, list[str]()
    for name in await _named(request, "picked"):
        try:
            said_of = _ANSWERS[answer](desk, name, form)
        except EvolveError as error:
            said_of = f"Refused: {error}"
        if said_of.startswith("Refused"):
            problems.append(f"Change {name}: {said_of}")
        else:
            done += 1
    desk.said += [f"{done} changes are {answer}ed.", *problems]
    return RedirectResponse(served("review"), 303)


@router.post("/review/{seq}/{answer}")
def decide(desk: At, seq: int, answer: str, form: Form) -> RedirectResponse:
    """Answer one: accept, reject, edit or defer."""
    if answer not in _ANSWERS:
        raise BadInput(f"got answer {answer!r}; expected one of {', '.join(_ANSWERS)}")
    desk.said.append(_ANSWERS[answer](desk, str(seq), form))
    return RedirectResponse(served("review"), 303)


def waiting(desk: PageContext, size: int = MOST) -> dict[str, Any]:
    """Return the queue, each change with what it would change."""
    queue = review_queue.proposals(desk.store, desk.namespace)
    return {"rows": [_row(desk, each) for each in queue[:size]], "total": len(queue)}


async def _named(request: Request, field: str) -> list[str]:
    """Return the numbers of changes that a form names, in its order."""
    return [value for value in (await request.form()).getlist(field) if isinstance(value, str)]


def _row(desk: PageContext, proposal: Proposal) -> dict[str, Any]:
    op = proposal.op
    target = desk.store.get(op.target_id) if op.target_id else None
    parents = desk.store.reader.load(list(op.parent_ids))
    before = "\n".join(map(said, [*([target] if target else []), *parents]))
    return {
        "proposal": proposal,
        "at": desk.store.events(after=proposal.seq - 1, limit=1)[0].created_at,
        "target": target,
        "lines": diff(before, _after(op, before)),
        "editable": _editable(proposal),
        "plain": op.kind in WRITTEN_IN,
    }


def _after(op: DeltaOp, before: str) -> str:
    """Return what the records will say: nothing once removed, the same when only a counter or a status changes."""
    if op.payload:
        return str(op.payload.get("source") or review_queue.says(op))
    return "" if op.op is Op.REMOVE else before


def _editable(proposal: Proposal) -> str:
    payload = proposal.op.payload
    if payload is None:
        return ""
    field = WRITTEN_IN.get(proposal.op.kind)
    return str(payload.get(field, "")) if field else json.dumps(payload, indent=2, ensure_ascii=False)


def _accept(desk: PageContext, name: str, form: dict[str, str]) -> str:
    return told(review_queue.accept(desk.store, name, actor=desk.actor))


def _edit(desk: PageContext, name: str, form: dict[str, str]) -> str:
    text = form.get("text", "").replace("\r\n", "\n")
    payload = review_queue.edited(review_queue.find(desk.store, name).op, text)
    return told(review_queue.accept(desk.store, name, actor=desk.actor, payload=payload))


def _reject(desk: PageContext, name: str, form: dict[str, str]) -> str:
    review_queue.reject(desk.store, name, actor=desk.actor, reason=form.get("why", ""))
    return f"Change {name} is rejected."


def _defer(desk: PageContext, name: str, form: dict[str, str]) -> str:
    review_queue.defer(desk.store, name, actor=desk.actor, reason=form.get("why", ""))
    return f"Change {name} waits on, after all others."


_ANSWERS: dict[str, Callable[[PageContext, str, dict[str, str]], str]] = {
    "accept": _accept,
    "reject": _reject,
    "edit": _edit,
    "defer": _defer,
}
