"""Two runs side by side: what each came to, where their settings differ, and which tasks ended differently."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from evolve.compare.against import against, last_episodes
from evolve.inspector.page_context import At, PageContext
from evolve.inspector.rendering import NOTHING, duration, minute, number, percent, show
from evolve.loop.history import RunSummary, find_summary
from memory.errors import BadInput

router = APIRouter()

MOST = 100
"""Tasks that ended differently, as many as are listed."""


@router.get("/compare")
def compare(request: Request, desk: At, run: Annotated[list[str] | None, Query()] = None) -> HTMLResponse:
    """Show two runs side by side."""
    return show(request, "compare.html", compared(desk, run or []))


def compared(desk: PageContext, names: list[str]) -> dict[str, Any]:
    """Return two runs, the older first, and their tasks in common. Raises `NotFound`, and `BadInput` for not two."""
    if len(set(names)) != 2:
        raise BadInput(f"got {len(set(names))} runs; tick exactly two of the list of runs")
    runs = sorted((find_summary(desk.store, name) for name in names), key=lambda each: each.started)
    found = against(desk.store, *(each.run_id for each in runs))
    one, other = (last_episodes(desk.store, each.run_id) for each in runs)
    flips = [(task, one[task], other[task]) for task in one if task in {*found.gained, *found.lost}]
    return {
        "runs": runs,
        "facts": _facts(runs),
        "found": found,
        "flips": flips[:MOST],
        "more": max(0, len(flips) - MOST),
    }


def _facts(runs: list[RunSummary]) -> list[tuple[str, list[str]]]:
    def of(each: RunSummary) -> dict[str, str]:
        return {
            "id": each.run_id,
            "kind": " ".join(filter(None, (each.kind, each.mode if each.mode != each.kind else ""))),
            "tags": ", ".join(each.tags),
            "started": minute(each.started),
            "status": " ".join(filter(None, (each.status, each.reason))),
            "environment": each.environment,
            "policy": " ".join(filter(None, (each.policy or each.client, each.policy_version))),
            "success": f"{percent(each.success)} of {each.tasks}" if each.tasks else "",
            "without memory": f"{percent(each.control_success)} of {each.control_tasks}" if each.control_tasks else "",
            "reward": f"{each.mean_reward:.2f}" if each.mean_reward is not None else "",
            "changes of knowledge": number(each.changes),
            "tokens": number(each.tokens),
            "cost": f"{each.cost_usd:.2f}" if each.cost_usd else "",
            "time": duration(each.seconds),
            "snapshot": each.snapshot or "",
        }

    sides = [of(each) for each in runs]
    return [(name, [side[name] or NOTHING for side in sides]) for name in sides[0] if any(side[name] for side in sides)]
