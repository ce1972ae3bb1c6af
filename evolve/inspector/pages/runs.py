"""Runs: all of them, one as a timeline of tasks, one episode step by step."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Path as PathValue
from fastapi.responses import HTMLResponse

from evolve.gates.events import VERDICT
from evolve.gates.ledger import entries, last_words
from evolve.gates.rounds import rounds_of
from evolve.history import find_summary, list_runs, owner_of, run_episodes
from evolve.inspector.desk import At, Desk
from evolve.inspector.pages.overview import curve, halves, totals
from evolve.inspector.paging import Number, Paging
from evolve.inspector.prompts import told
from evolve.inspector.rendering import show
from evolve.inspector.waterfall import waterfall
from evolve.runs import load_run
from evolve.state import NO_MEMORY
from memory import episodes, listing
from memory.errors import NotFound
from memory.records import Reflection, Trajectory, Verdict

router = APIRouter()

RUNS, TASKS, VERDICTS = 25, 100, 100
"""Rows of a screen."""


@router.get("/runs")
def runs(request: Request, desk: At, page: Number = 1) -> HTMLResponse:
    """List the runs, the latest first."""
    return show(request, "runs.html", all_runs(desk, page))


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


def all_runs(desk: Desk, page: int = 1, size: int = RUNS) -> dict[str, Any]:
    """Return a screen of runs, each with what it came to."""
    found, total = list_runs(desk.store, offset=(page - 1) * size, limit=size)
    return {"rows": found, "paging": Paging(page, size, total)}


def one_run(desk: Desk, run_id: str, page: int = 1, size: int = TASKS) -> dict[str, Any]:
    """Return a run with a screen of its tasks. Raises `NotFound`."""
    record = load_run(desk.store, run_id)
    every = run_episodes(desk.store, run_id)
    control = {each.task_id: each for each in every if each.arm == NO_MEMORY}
    main = [each for each in every if each.arm != NO_MEMORY] or every
    said = last_words(entries(desk.store, run_id))
    paging = Paging(page, size, len(main))
    shown = list(enumerate(main, start=1))[paging.offset : paging.offset + size]
    return {
        "record": record,
        "summary": find_summary(desk.store, run_id),
        "curve": curve(every),
        "halves": halves(every),
        "totals": totals(every),
        "rows": [{"at": at, "main": each, "control": control.get(each.task_id)} for at, each in shown],
        "paging": paging,
        "verdicts": said[:VERDICTS],
        "more_verdicts": max(0, len(said) - VERDICTS),
    }


def one_episode(desk: Desk, name: str) -> dict[str, Any]:
    """Return an episode with its prompt, reflection and what was learned from it. Raises `NotFound`."""
    trajectory = desk.store.trajectory(name)
    if trajectory is None:
        raise NotFound(f"no episode {name!r}; the runs list theirs")
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


def _reflections(desk: Desk, trajectory: Trajectory) -> tuple[Reflection, ...]:
    return episodes.find(desk.store.journal, Reflection, "reflections", trajectory_id=trajectory.id)


def one_verdict(desk: Desk, seq: int) -> dict[str, Any]:
    """Return a verdict with what each changed op says. Raises `NotFound`."""
    found = desk.store.events(type=VERDICT, after=seq - 1, limit=1)
    if not found or found[0].seq != seq or "gate" not in found[0].data:
        raise NotFound(f"no verdict {seq}, or its text was purged; a run lists its own")
    event = found[0]
    verdict = Verdict.model_validate(event.data)
    about = {each.op_id: each for each in entries(desk.store, event.run_id) if each.seq == seq}
    return {"event": event, "verdict": verdict, "about": about, "rounds": rounds_of(verdict)}
