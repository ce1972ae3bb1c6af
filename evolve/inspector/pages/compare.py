"""Two runs side by side: what each came to, where their settings differ, and which tasks ended differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from evolve.history import WITH_MEMORY, RunSummary, find_summary, run_episodes
from evolve.inspector.desk import At, Desk
from evolve.inspector.rendering import NOTHING, duration, minute, number, percent, show
from evolve.statistics.paired import pair
from memory.errors import BadInput
from memory.listing import EpisodeLine

router = APIRouter()

MOST = 100
"""Tasks that ended differently, as many as are listed."""


@router.get("/compare")
def compare(request: Request, desk: At, run: Annotated[list[str] | None, Query()] = None) -> HTMLResponse:
    """Show two runs side by side."""
    return show(request, "compare.html", compared(desk, run or []))


def compared(desk: Desk, names: list[str]) -> dict[str, Any]:
    """Return two runs, the older first, and their tasks in common. Raises `NotFound`, and `BadInput` for not two."""
    if len(set(names)) != 2:
        raise BadInput(f"got {len(set(names))} runs; tick exactly two of the list of runs")
    runs = sorted((find_summary(desk.store, name) for name in names), key=lambda each: each.started)
    one, other = (_tasks(desk, each.run_id) for each in runs)
    shared = [task for task in one if task in other]
    marks = [{task: side[task].success for task in shared} for side in (one, other)]
    paired = pair(shared, *marks) if shared else None
    low, high = paired.statistics["interval"] if paired else (0.0, 0.0)
    flips = [(task, one[task], other[task]) for task in shared if one[task].success != other[task].success]
    return {
        "runs": runs,
        "facts": _facts(runs),
        "differing": _differing(*(desk.store.get_run(each.run_id) or {} for each in runs)),
        "paired": paired,
        "low": low,
        "high": high,
        "flips": flips[:MOST],
        "more": max(0, len(flips) - MOST),
    }


def _tasks(desk: Desk, run_id: str) -> dict[str, EpisodeLine]:
    """Return the last episode of each task that a run did with memory; of one that did none so, without."""
    every = run_episodes(desk.store, run_id)
    shown = [each for each in every if each.arm in WITH_MEMORY]
    return {each.task_id: each for each in shown or every}


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


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the settings that two runs do not share."""
    sides = [dict(_flat(each.get("config", {}))) for each in (one, other)]
    keys = sorted({*sides[0], *sides[1]})
    values = ((key, *(str(side.get(key, NOTHING)) for side in sides)) for key in keys)
    return [(key, first, second) for key, first, second in values if first != second]


def _flat(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{above}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield f"{above}{name}", item
