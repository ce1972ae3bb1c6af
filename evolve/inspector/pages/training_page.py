"""Training: how far each came, its curves, and which rows it used."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from evolve.generations.workspace_registry import FOLDER
from evolve.inspector.page_context import At, PageContext
from evolve.inspector.rendering import chart, show
from evolve.training import ledger
from evolve.training.batches import COUNTED
from evolve.training.curves import SECTIONS, Told, drawn, over
from evolve.training.rollout_store import iterations
from evolve.training.status import told_by, trainings

router = APIRouter()


@router.get("/training")
def training(request: Request, desk: At) -> HTMLResponse:
    """List the trainings, the latest first."""
    return show(request, "training.html", {"rows": trainings(desk.config)[::-1]})


@router.get("/training/{name}")
def one(request: Request, desk: At, name: str) -> HTMLResponse:
    """Show the curves of one training."""
    return show(request, "curves.html", curves(desk, name))


def curves(desk: PageContext, name: str) -> dict[str, Any]:
    """Return a chart for each figure of a training, and its last figures. Raises `NotFound`."""
    told = told_by(desk.config, name)
    row = next(row for row in trainings(desk.config) if row["training"] == name)
    return {
        "row": row,
        "sections": _sections(told),
        "figures": told[-1],
        "counts": {key: sum(each.get(key, 0.0) for each in told) for key in COUNTED if key in told[-1]},
        "episodes": _episodes(desk, name),
        "rollouts": iterations(desk.config.workspace / FOLDER / ledger.FOLDER / name),
    }


def _episodes(desk: PageContext, name: str) -> list[str]:
    """Return the ids of the episodes that were trained on, those of the first iteration first."""
    told = ledger.lines(desk.config.workspace / FOLDER / ledger.FOLDER / name / ledger.HISTORY)
    return list(dict.fromkeys(key for line in told for key in line.get("episodes", ())))


def _sections(told: Told) -> dict[str, list[str]]:
    """Return for each heading its charts, without headings that have none."""
    _, x = over(told)
    found = {
        heading: [
            chart(title, x, series, joined=any(None in values for values in series.values()))
            for title, series in drawn(told, panels).items()
        ]
        for heading, panels in SECTIONS.items()
    }
    return {heading: charts for heading, charts in found.items() if charts}
