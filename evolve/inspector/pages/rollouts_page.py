"""Rollouts of a training: a list of those that are kept, and one turn by turn, shaded by its advantages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from evolve.inspector.page_context import At, PageContext
from evolve.inspector.pager import Paging
from evolve.inspector.rendering import show
from evolve.training.rollout_store import StoredRollout, find, iterations, keeping, read
from memory.records import Frozen

router = APIRouter()

ROWS = 100
"""Rows of a screen."""
LEVELS = 3
"""Shades of an advantage, each way."""
HERE = "training"
"""What the navigation marks."""


class Asked(Frozen):
    """Which rollouts a list shows."""

    iteration: int | Literal[""] = ""
    outcome: Literal["all", "solved", "failed"] = "all"
    group: str = Field(default="", max_length=300)
    page: int = Field(default=1, ge=1, le=1_000_000)

    def wants(self, each: StoredRollout) -> bool:
        """Return whether the list shows a rollout."""
        return self.outcome in ("all", "solved" if each.success else "failed") and self.group in ("", each.group)


@router.get("/rollouts/{training}")
def rollouts(request: Request, desk: At, training: str, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    """List the rollouts that a training kept, the latest iteration first."""
    return show(request, "rollouts.html", listed(desk, training, asked))


@router.get("/rollouts/{training}/{name:path}")
def rollout(request: Request, desk: At, training: str, name: str) -> HTMLResponse:
    """Show one rollout: prompt, turns, parts of the reward, advantages."""
    folder = keeping(desk.config, training)
    found = find(folder, name)
    return show(request, "rollout.html", one(training, found, read(folder, found.iteration)))


def listed(desk: PageContext, training: str, asked: Asked, size: int = ROWS) -> dict[str, Any]:
    """Return a screen of the rollouts of a training. Raises `NotFound`."""
    folder = keeping(desk.config, training)
    every = [each for each in latest(folder, asked.iteration) if asked.wants(each)]
    paging = Paging(asked.page, size, len(every))
    return {
        "training": training,
        "rows": every[paging.offset : paging.offset + size],
        "paging": paging,
        "asked": asked,
        "iterations": iterations(folder)[::-1],
        "here": HERE,
    }


def latest(folder: Path, iteration: int | Literal[""] = "") -> list[StoredRollout]:
    """Return the rollouts of a training, the latest iteration first, or those of one iteration."""
    chosen = iterations(folder)[::-1] if iteration == "" else [iteration]
    return [each for number in chosen for each in read(folder, number)]


def one(training: str, rollout: StoredRollout, every: Sequence[StoredRollout]) -> dict[str, Any]:
    """Return a rollout with those of `every` that it is compared with, and how strongly each turn is shaded."""
    group = [each for each in every if (each.iteration, each.group) == (rollout.iteration, rollout.group)]
    most = max((abs(turn.advantage or 0.0) for each in group for turn in each.turns), default=0.0)
    shades = [shade(turn.advantage, most) for turn in rollout.turns]
    return {"training": training, "it": rollout, "group": group, "shades": shades, "here": HERE}


def shade(advantage: float | None, most: float) -> str:
    """Return the style class of an advantage beside the largest one of its group; empty where it says nothing."""
    if not advantage:
        return ""
    return f"{'up' if advantage > 0 else 'down'}{math.ceil(LEVELS * abs(advantage) / most)}"
