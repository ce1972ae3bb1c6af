"""One record: what it says, where it came from, what came of it, its history; and what an operator can do with it."""

from __future__ import annotations

import difflib
import json
from itertools import pairwise
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from evolve.gates.decision_ledger import GateDecision, entries, last_words
from evolve.gates.review_queue import WRITTEN_IN
from evolve.gates.scoring import cases
from evolve.inspector.page_context import At, Form, PageContext
from evolve.inspector.rendering import served, show
from evolve.workspace import editing
from memory.errors import BadInput, NotFound
from memory.records import RECALLABLE, Commit, Record
from skills.library import Library

router = APIRouter()


@router.get("/records/{name}")
def record(request: Request, desk: At, name: str) -> HTMLResponse:
    """Show one record whole."""
    return show(request, "record.html", one(desk, name))


@router.post("/records/{name}/retire")
def retire(desk: At, name: str, form: Form) -> RedirectResponse:
    """Take a record out of all prompts. Refused for a skill that others call."""
    found = known(desk, name)
    return _changed(
        desk, found, editing.retire(desk.store, desk.namespace, found, form.get("why", ""), actor=desk.actor)
    )


@router.post("/records/{name}/restore")
def restore(desk: At, name: str, form: Form) -> RedirectResponse:
    """Bring a record into use, on the operator's authority."""
    found = known(desk, name)
    return _changed(
        desk, found, editing.promote(desk.store, desk.namespace, found, form.get("why", ""), actor=desk.actor)
    )


@router.post("/records/{name}/edit")
def edit(desk: At, name: str, form: Form) -> RedirectResponse:
    """Write a new version; refused when the record changed since the page was loaded."""
    found = known(desk, name)
    text, version = form.get("text", "").replace("\r\n", "\n"), form.get("version", "")
    if not text.strip() or not (version.isdecimal() and len(version) < 10):
        raise BadInput(f"got {text!r} for a {found.kind}; expected its new text and its version")
    return _changed(
        desk,
        found,
        editing.edit(desk.store, desk.namespace, found.id, text, actor=desk.actor, version=int(version)),
    )


def one(desk: PageContext, name: str) -> dict[str, Any]:
    """Return a record with its worth, versions and events. Raises `NotFound`."""
    found = known(desk, name)
    (case,) = cases(desk.store, desk.config.forget, [found])
    versions = desk.store.reader.versions(found.id)
    events = [event for event in desk.store.history(found.id) if event.type != "knowledge.tag"]
    skill = found.kind == "skill"
    runs = {event.run_id for event in events if event.run_id}
    library = Library(desk.store.view(desk.namespace).records("skill")) if skill else None
    return {
        "record": found,
        "case": case,
        "usable": found.status in RECALLABLE,
        "field": WRITTEN_IN.get(found.kind, "fields as JSON"),
        "written": _written(found),
        "complaints": editing.complaints_about(desk.store, found.payload, runs) if skill else (),
        "callers": library.required_by(found.payload.name) if library else (),
        "changes": _changes(versions),
        "events": events[::-1],
        "verdicts": _verdicts(desk, found.id, runs),
        "replaced": desk.store.reader.load(list(found.supersedes)),
    }


def _written(record: Record[Any]) -> str:
    """Return what a person edits of a record: its text field, or all fields as JSON."""
    payload = record.payload.model_dump(mode="json")
    field = WRITTEN_IN.get(record.kind)
    return payload[field] if field else json.dumps(payload, indent=2, ensure_ascii=False)


def _verdicts(desk: PageContext, record_id: str, runs: set[str]) -> list[GateDecision]:
    """Return the last word of each gate about each change that wrote the record, the latest first."""
    ops = desk.store.ops_of(record_id)
    said = [each for run in sorted(runs) for each in entries(desk.store, run) if each.op_id in ops]
    return last_words(said)


def known(desk: PageContext, name: str) -> Record[Any]:
    """Return a record of any status by id. Raises `NotFound`."""
    found = desk.store.get(name)
    if found is None:
        raise NotFound(f"no record {name!r}; it was forgotten, or it was never there")
    return found


def _changes(versions: tuple[Record[Any], ...]) -> list[dict[str, Any]]:
    """Return each version that says something else than the one before, the latest first, as a diff of lines."""
    found: list[dict[str, Any]] = []
    for before, after in pairwise(versions):
        if before.content_hash != after.content_hash:
            found.append({"from": before, "to": after, "lines": diff(said(before), said(after))})
    return found[::-1]


def said(record: Record[Any]) -> str:
    """Return what a record says: a skill's source, else its text."""
    return str(getattr(record.payload, "source", "") or record.payload.text())


def diff(before: str, after: str) -> list[tuple[str, str]]:
    """Return (`+`, `-` or blank, line) of every line of a diff."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [(line[0].strip(), line[2:]) for line in lines if line[0] != "?"]


def _changed(desk: PageContext, found: Record[Any], commit: Commit) -> RedirectResponse:
    desk.said.append(told(commit))
    return RedirectResponse(served("records", found.id), 303)


def told(commit: Commit) -> str:
    """Say what became of a change."""
    refused = "; ".join(result.reason for result in commit.refused)
    return f"Refused: {refused}" if refused else f"Done. The journal has it as version {commit.version}."
