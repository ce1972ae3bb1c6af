"""The inspector as one static file to share: the same pages, no server, nothing loaded from anywhere.

Styles and scripts stand in the file, and its policy names the hashes of exactly these scripts: planted text runs no
more than it does on the server. What is left out because it would be too much is counted on the first page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from evolve import inspector
from evolve.generations.workspace_registry import FOLDER
from evolve.inspector.page_context import PageContext
from evolve.inspector.pages import (
    knowledge_page,
    overview_page,
    policies_page,
    record_page,
    review_page,
    rollouts_page,
    runs_page,
    skills_page,
    snapshots_page,
    training_page,
)
from evolve.inspector.rendering import PAGES, frame, render
from evolve.loop.history import list_runs, run_episodes
from evolve.training import ledger
from evolve.training.status import trainings
from memory import paging

RUNS, EPISODES, ROWS = 5, 200, 1000
"""Most runs, episodes (also: rollouts of a training) that are written out, most rows of a list: the latest of each."""
SCRIPTS, STYLES = ("uPlot.iife.min.js", "app.js"), ("uPlot.min.css", "app.css")

Loader = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Sheet:
    """One page of the file."""

    page: str
    name: str
    template: str
    load: Loader

    @property
    def key(self) -> str:
        return place(self.page, self.name)


@dataclass(frozen=True)
class Exported:
    """What was written."""

    sheets: int
    bytes: int
    left_out: str
    """What the workspace holds besides; empty when all is in the file."""


def place(page: str, name: str = "") -> str:
    """Return the id of a page in the file: letters, digits and dashes, whatever the name holds."""
    return page if not name else f"{page}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def export(desk: PageContext, file: Path) -> Exported:
    """Write the file, all or nothing."""
    still = replace(desk, read_only=True, said=[])
    sheets, left_out = _sheets(still)
    known = {sheet.key for sheet in sheets}

    def link(page: str, name: str = "", /, **query: object) -> str:
        key = place(page, name)
        return f"#{key}" if key in known and not query else ""

    within = {**frame(still, link), "layout": "sheet.html", "still": True}
    parts = [{"key": sheet.key, "html": render(sheet.template, {**within, **sheet.load()})} for sheet in sheets]
    scripts = [_static(name) for name in SCRIPTS]
    html = render(
        "export.html",
        {
            **frame(still, link),
            "word": within["word"],  # explains what the parts named
            "parts": parts,
            "styles": [_static(name) for name in STYLES],
            "scripts": scripts,
            "hashes": [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts],
            "left_out": left_out,
            "listed": {name: title for name, title in PAGES.items() if name in known},
        },
    )
    ledger.write(file, html)
    return Exported(len(sheets), len(html.encode()), left_out)


def _sheets(desk: PageContext) -> tuple[list[Sheet], str]:
    """Return the pages to write, and a sentence about what is left out."""
    journal = desk.store.journal
    found, all_runs = list_runs(desk.store, limit=RUNS)
    ids = [run.run_id for run in found]
    every = [each for run_id in ids for each in run_episodes(desk.store, run_id)[::-1]]
    records, known = paging.records(journal, paging.Wanted(desk.namespace), limit=ROWS)
    standing = trainings(desk.config)
    asked = knowledge_page.Asked(status=knowledge_page.ALL)
    sheets = [
        Sheet("overview", "", "overview.html", lambda: overview_page.data(desk)),
        Sheet("runs", "", "runs.html", lambda: runs_page.all_runs(desk, runs_page.Asked(), ROWS)),
        Sheet("playbook", "", "records.html", lambda: knowledge_page.records(desk, "bullet", asked, ROWS)),
        Sheet("notebook", "", "records.html", lambda: knowledge_page.records(desk, "note", asked, ROWS)),
        Sheet("exemplars", "", "records.html", lambda: knowledge_page.records(desk, "exemplar", asked, ROWS)),
        Sheet("skills", "", "skills.html", lambda: skills_page.listed(desk, asked, ROWS)),
        Sheet("review", "", "review.html", lambda: review_page.waiting(desk, ROWS)),
        Sheet("policies", "", "policies.html", lambda: policies_page.generations(desk)),
        Sheet("training", "", "training.html", lambda: {"rows": standing[::-1]}),
        Sheet("prompt", "", "prompt.html", lambda: knowledge_page.rendered(desk)),
        Sheet("snapshots", "", "snapshots.html", lambda: snapshots_page.listed(desk, size=ROWS)),
        *(Sheet("runs", key, "run.html", lambda key=key: runs_page.one_run(desk, key, size=ROWS)) for key in ids),
        *(
            Sheet("episodes", each.id, "episode.html", lambda key=each.id: runs_page.one_episode(desk, key))
            for each in every[:EPISODES]
        ),
        *(Sheet("records", key, "record.html", lambda key=key: record_page.one(desk, key)) for key in records),
        *(
            Sheet(
                "training", row["training"], "curves.html", lambda key=row["training"]: training_page.curves(desk, key)
            )
            for row in standing
            if row["figures"]
        ),
        *(sheet for row in standing for sheet in _rollouts(desk, row["training"])),
    ]
    more = {
        "runs": all_runs - len(ids),
        "episodes": paging.episode_count(journal) - min(len(every), EPISODES),
        "records": known - len(records),
    }
    return sheets, ", ".join(f"{count:,} {name}" for name, count in more.items() if count > 0)


def _rollouts(desk: PageContext, training: str) -> Iterator[Sheet]:
    """Yield the pages of a training's latest rollouts; none where it keeps none."""
    every = rollouts_page.latest(desk.config.workspace / FOLDER / ledger.FOLDER / training)
    found, asked = every[:EPISODES], rollouts_page.Asked()
    if found:
        yield Sheet(
            "rollouts", training, "rollouts.html", lambda: rollouts_page.listed(desk, training, asked, EPISODES)
        )
    for each in found:
        key = f"{training}/{each.id}"
        yield Sheet("rollouts", key, "rollout.html", lambda it=each: rollouts_page.one(training, it, every))


def _static(name: str) -> str:
    return (files(inspector) / "static" / name).read_text(encoding="utf-8")
