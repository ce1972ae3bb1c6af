"""Policies: the generations of the model, which answers, what was measured of each; promote and roll back.

A promotion loads the model and asks its canary. That happens in a process of its own, through the command that a
person would type, so the gate and the canary are the same and the page stays light.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

import evolve
from evolve.generations.workspace_registry import FOLDER, has_generations, open_registry
from evolve.inspector.page_context import At, Form, PageContext
from evolve.inspector.rendering import served, show
from memory.errors import BadInput, EvolveError
from policies.generations.generation_records import Generation
from policies.generations.generation_registry import DATABASE

router = APIRouter()

POINTS = ", points"
"""Ends the names of the gate's figures that are differences."""


@router.get("/policies")
def policies(request: Request, desk: At) -> HTMLResponse:
    """Show the generations."""
    return show(request, "policies.html", generations(desk))


@router.post("/policies/{verb}")
async def change(desk: At, verb: str, form: Form) -> RedirectResponse:
    """Promote a generation that the gate accepted, or roll the live one back."""
    if verb == "promote":
        arguments = ("promote", _known(desk, form.get("version", "")))
    elif verb == "rollback":
        arguments = ("rollback",)
    else:
        raise BadInput(f"got {verb!r}; expected promote or rollback")
    desk.said.append(await _command(desk, *arguments))
    return RedirectResponse(served("policies"), 303)


def generations(desk: PageContext) -> dict[str, Any]:
    """Return the generations, the latest first, with their history; none where no model was ever trained here."""
    section, workspace = desk.config.policy, desk.config.workspace
    begun = {"name": section.name, "trainable": has_generations(section), "problem": ""}
    if not (workspace / FOLDER / DATABASE).exists():
        return {**begun, "rows": ()}
    try:
        with open_registry(section, workspace, read_only=True) as registry:
            found, live = registry.generations(), registry.live().version
            rows = [
                {"it": each, "gate": gate_of(each), "history": registry.history(each.version)[::-1]}
                for each in found[::-1]
            ]
    except EvolveError as error:
        return {**begun, "problem": str(error), "rows": ()}
    return {**begun, "rows": rows, "live": live, "children": _children([row["it"] for row in rows])}


def gate_of(generation: Generation) -> dict[str, Any]:
    """Return what the gate said of a generation in words, what it measured, and whether it may be promoted."""
    metrics = generation.metrics
    accepted = bool(metrics.get("gate.accepted"))
    answer = "accepted" if accepted else "refused" if "gate.accepted" in metrics else "not measured"
    waived = bool(metrics.get("gate.waived"))
    return {
        "answer": "the base model" if generation.adapter is None else answer,
        "reason": metrics.get("gate.reason", ""),
        "beside": metrics.get("gate.beside", ""),
        "look": metrics.get("gate.look"),
        "waived": waived,
        "promotable": generation.adapter is None or accepted or waived,
        "points": {
            name.removeprefix("gate.").removesuffix(POINTS): value
            for name, value in metrics.items()
            if name.endswith(POINTS)
        },
        "others": {name.replace("_", " "): value for name, value in metrics.items() if not name.startswith("gate.")},
    }


def _known(desk: PageContext, version: str) -> str:
    """Return the version. Raises `BadInput` for one that is not there: what a form says is never an option."""
    known = [row["it"].version for row in generations(desk)["rows"]]
    if version not in known:
        raise BadInput(f"got version {version!r}; expected one of {', '.join(known) or 'those trained here: none'}")
    return version


def _children(found: list[Any]) -> dict[str, list[str]]:
    """Return version -> the versions that were trained from it."""
    return {each.version: sorted(other.version for other in found if other.parent == each.version) for each in found}


async def _command(desk: PageContext, *arguments: str) -> str:
    """Run `evolve policy ...` and return what it came to in a sentence."""
    named = ("--config", str(desk.file)) if desk.file else ()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", evolve.__name__, *named, "policy", *arguments, "--json"),
        cwd=desk.config.root,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    verb = " ".join(arguments)
    try:
        said = json.loads(out)
    except ValueError:
        return f"`evolve policy {verb}` ended with exit code {process.returncode}; run it in a terminal to see why."
    error = said.get("error") if isinstance(said, dict) else None
    return f"Refused: {error['message']}" if error else f"Done: `evolve policy {verb}`."
