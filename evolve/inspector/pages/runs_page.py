"""Runs: all of them, one as a timeline of tasks, one episode step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathValue
from fastapi.responses import HTMLResponse
from pydantic import Field

from evolve.episode.arms import NO_MEMORY
from evolve.gates.decision_ledger import entries, last_words
from evolve.gates.decisions import rounds_of
from evolve.gates.gate_events import VERDICT
from evolve.inspector.headline import parts
from evolve.inspector.page_context import At, PageContext
from evolve.inspector.pager import Number, Paging
from evolve.inspector.pages.overview_page import curve, halves, totals
from evolve.inspector.prompts import told
from evolve.inspector.rendering import show
from evolve.inspector.waterfall import waterfall
from evolve.loop.history import TEACHING, find_summary, list_runs, owner_of, run_changes, run_episodes
from evolve.loop.lives import compared, life_with
from evolve.loop.role_policies import used
from evolve.loop.runs import KINDS, LANGGRAPH, load_run
from memory import episodes, runlist
from memory import paging as listing
from memory.errors import NotFound
from memory.records import Frozen, Reflection, Trajectory, Verdict
from memory.runlist import RunFilter

router = APIRouter()

RUNS, TASKS, VERDICTS = 25, 100, 100
"""Rows of a screen."""


class Asked(Frozen):
    """Which runs a list shows."""

    name: str = Field(default="", max_length=200)
    tag: str = Field(default="", max_length=200)
    kind: str = ""
    since: date | Literal[""] = ""
    until: date | Literal[""] = ""
    page: int = Field(default=1, ge=1, le=1_000_000)


@router.get("/runs")
def runs(request: Request, desk: At, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    """List the runs, the latest first."""
    return show(request, "runs.html", all_runs(desk, asked))


@router.get("/runs/{run_id}")
def run(request: Request, desk: At, run_id: str, page: Number = 1) -> HTMLResponse:
    """Show one run: its tasks in order, and what its gates said."""
    return show(request, "run.html", one_run(desk, run_id, page))


@router.get("/episodes/{name}")
def episode(request: Request, desk: At, name: str) -> HTMLResponse:
    """Show one episode: prompt, steps, checks, and what was learned from it."""
    return show(request, "episode.html", one_episode(desk, name))


@router.get("/verdicts/{seq}")
def verdict(request: Request, desk: At, seq: Annotated[int, PathValue(ge=0, le=2**63 - 1)]) -> HTMLResponse:
    """Show what a gate said, and the trials that it rests on."""
    return show(request, "verdict.html", one_verdict(desk, seq))


def all_runs(desk: PageContext, asked: Asked, size: int = RUNS) -> dict[str, Any]:
    """Return a screen of runs, each with what it came to. Raises `BadInput` for an unknown kind."""
    wanted = RunFilter(
        kinds=(asked.kind,) if asked.kind else (),
        tag=asked.tag,
        name=asked.name,
        since=str(asked.since),
        until=str(asked.until),
    )
    found, total = list_runs(desk.store, wanted, offset=(asked.page - 1) * size, limit=size)
    tags = runlist.tags(desk.store.journal)
    return {
        "rows": found,
        "paging": Paging(asked.page, size, total),
        "asked": asked,
        "kinds": KINDS,
        "tags": tags,
        "any": total or list_runs(desk.store, limit=1)[1],
    }


def one_run(desk: PageContext, run_id: str, page: int = 1, size: int = TASKS) -> dict[str, Any]:
    """Return a run with a screen of its tasks. Raises `NotFound`."""
    record = load_run(desk.store, run_id)
    every = run_episodes(desk.store, run_id)
    control = {each.task_id: each for each in every if each.arm == NO_MEMORY}
    main = [each for each in every if each.arm != NO_MEMORY] or every
    said = last_words(entries(desk.store, run_id))
    paging = Paging(page, size, len(main))
    shown = list(enumerate(main, start=1))[paging.offset : paging.offset + size]
    summary = find_summary(desk.store, run_id)
    streamed = summary.kind in TEACHING
    return {
        "record": record,
        "compared": compared(desk.store, run_id),
        "put": run_changes(desk.store, run_id) if record.kind == LANGGRAPH else (),
        "summary": summary,
        "curve": curve(every) if streamed else "",
        "halves": halves(every) if streamed else parts(summary),
        "totals": totals(every),
        "roles": used(desk.store, run_id, f"{record.policy} {record.policy_version}".strip(), record.roles),
        "rows": [{"at": at, "main": each, "control": control.get(each.task_id)} for at, each in shown],
        "paging": paging,
        "verdicts": said[:VERDICTS],
        "more_verdicts": max(0, len(said) - VERDICTS),
    }


def one_episode(desk: PageContext, name: str) -> dict[str, Any]:
    """Return an episode with its prompt, reflection and what was learned from it. Raises `NotFound`.

    That of a comparison is read from the workspace of its life; its records are not on these pages.
    """
    trajectory = desk.store.trajectory(name)
    if trajectory is not None:
        return _episode(desk, trajectory)
    with life_with(desk.store, name) as life:
        if life is None:
            raise NotFound(f"no episode {name!r}; the runs list theirs")
        store, run_id = life
        place = {"root": store.journal.path.parent, "memory": desk.config.memory.model_copy(update={"workspace": "."})}
        there = replace(desk, store=store, config=desk.config.model_copy(update=place))
        (trajectory,) = episodes.find(store.journal, Trajectory, "trajectories", id=name)
        return {**_episode(there, trajectory), "run": run_id, "elsewhere": True}


def _episode(desk: PageContext, trajectory: Trajectory) -> dict[str, Any]:
    shown = desk.store.reader.load([each.record_id for each in trajectory.injected])
    learned = listing.learned_from(desk.store.journal, trajectory.id, trajectory.task.id)
    bars, said = waterfall(desk.config.workspace, trajectory)
    return {
        "episode": trajectory,
        "run": owner_of(desk.store, trajectory.run_id),
        "told": told(desk, trajectory),
        "shown": {record.id: record for record in shown},
        "reflections": _reflections(desk, trajectory),
        "learned": desk.store.reader.load(learned),
        "parts": sorted({name for each in trajectory.injected for name in each.scores}),
        "waterfall": bars,
        "said_of_time": said,
    }


def _reflections(desk: PageContext, trajectory: Trajectory) -> tuple[Reflection, ...]:
    return episodes.find(desk.store.journal, Reflection, "reflections", trajectory_id=trajectory.id)


def one_verdict(desk: PageContext, seq: int) -> dict[str, Any]:
    """Return a verdict with what each changed op says. Raises `NotFound`."""
    found = desk.store.events(type=VERDICT, after=seq - 1, limit=1)
    if not found or found[0].seq != seq or "gate" not in found[0].data:
        raise NotFound(f"no verdict {seq}, or its text was purged; a run lists its own")
    event = found[0]
    verdict = Verdict.model_validate(event.data)
    about = {each.op_id: each for each in entries(desk.store, event.run_id) if each.seq == seq}
    return {"event": event, "verdict": verdict, "about": about, "rounds": rounds_of(verdict), "arms_of": arms_of}


def arms_of(trial: Mapping[str, Any]) -> list[tuple[str, Mapping[str, bool | None]]]:
    """Return (title, task id -> mark) of each arm of a trial, or of each of its rounds, that ran something."""
    titles = {
        "base": "Without the change",
        "candidate": "With it",
        "again": "Without, again",
        "placebo": "With an empty line",
    }
    arms = [(title, trial[name]) for name, title in titles.items() if trial.get(name)]
    rounds = zip(trial.get("without", ()), trial.get("with_change", ()), strict=False)
    for number, (bare, changed) in enumerate(rounds, 1):
        arms += [(f"Without it, {number}", bare), (f"With it, {number}", changed)]
    return arms
