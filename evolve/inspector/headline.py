"""The figures that answer "does it learn": held-out success with and without memory, and how runs went over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evolve.episode.metrics import interval
from evolve.inspector.rendering import chart
from evolve.loop.curve import WINDOW
from evolve.loop.history import (
    TEACHING,
    WITH_MEMORY,
    WITHOUT_MEMORY,
    RunSummary,
    latest_learner,
    list_runs,
    run_episodes,
)
from evolve.loop.runs import EVAL, LEARN, QUARANTINE, RUNNING
from evolve.statistics.paired import pair
from memory.runlist import RunFilter
from memory.store import Store

RUNS = 40
"""Runs of the history, the latest."""
EXAMS = 10
"""Evaluations among which the latest with memory and the latest without are looked for."""
Count = tuple[int, int]
"""(solved, tasks)."""


def with_memory(run: RunSummary) -> Count:
    """Return what a run solved with memory."""
    return run.solved, run.tasks


def without_memory(run: RunSummary) -> Count:
    """Return what a run solved without memory."""
    return round((run.control_success or 0.0) * run.control_tasks), run.control_tasks


def tile(name: str, count: Count, run: RunSummary | None = None) -> dict[str, Any]:
    """Return a share with its 95 % interval (Wilson) and the run it is from."""
    solved, n = count
    return {"name": name, "share": solved / n, "n": n, "interval": interval(solved, n), "run": run}


def held_out(exams: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Return the latest held-out success with memory and without, each with its evaluation; empty before the first."""
    sides: tuple[tuple[str, Callable[[RunSummary], Count]], ...] = (
        ("held-out, with memory", with_memory),
        ("held-out, without memory", without_memory),
    )
    found: list[dict[str, Any]] = []
    for name, count in sides:
        run = next((each for each in exams if count(each)[1]), None)
        if run is not None:
            found.append(tile(name, count(run), run))
    return found


def difference(store: Store, tiles: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return what memory is worth by one evaluation: over the tasks it did with memory and without; None without any.

    The interval is Tango's, of paired differences.
    """
    runs = {each["run"].run_id for each in tiles}
    if len(tiles) < 2 or len(runs) != 1:
        return None
    every = run_episodes(store, runs.pop())
    bare = {each.task_id: each.success for each in every if each.arm in WITHOUT_MEMORY}
    shown = {each.task_id: each.success for each in every if each.arm in WITH_MEMORY and each.task_id in bare}
    if not shown:
        return None
    found = pair(list(shown), bare, shown)
    low, high = found.statistics["interval"]
    return {"delta": 100 * found.delta, "low": 100 * low, "high": 100 * high, "n": found.n}


def history(runs: Sequence[RunSummary]) -> str:
    """Return success over runs, the oldest first, as a chart; empty before there are two."""
    shown = [run for run in runs[::-1] if run.tasks or run.control_tasks]
    if len(shown) < 2:
        return ""

    def line(kind: Callable[[RunSummary], bool], count: Callable[[RunSummary], Count]) -> list[float | None]:
        counts = [count(run) if kind(run) else (0, 0) for run in shown]
        return [100 * solved / n if n else None for solved, n in counts]

    lines = {
        "held-out, with memory": line(lambda run: run.kind == EVAL, with_memory),
        "held-out, without memory": line(lambda run: run.kind == EVAL, without_memory),
        "while it learned": line(lambda run: run.kind not in (EVAL, QUARANTINE), with_memory),
    }
    drawn = {name: line for name, line in lines.items() if any(value is not None for value in line)}
    title = f"Tasks solved, the latest {len(shown)} runs, oldest first"
    return chart(title, list(range(1, len(shown) + 1)), drawn, "%", joined=True)


def latest(store: Store) -> list[RunSummary]:
    """Return the latest runs of every kind, the latest first."""
    return list_runs(store, limit=RUNS)[0]


def latest_exams(store: Store) -> list[RunSummary]:
    """Return the latest evaluations, the latest first."""
    return list_runs(store, RunFilter(kinds=(EVAL,)), limit=EXAMS)[0]


def told_runs(store: Store) -> tuple[RunSummary | None, RunSummary | None]:
    """Return the run whose curve is drawn, and the latest one, of those that may have taught something.

    The curve is that of the latest run in which a window is full, or will be; where there is none, the latest.
    """
    last = latest_learner(store)
    found, _ = list_runs(store, RunFilter(kinds=TEACHING), limit=RUNS)
    return next((run for run in found if _fills(run)), last), last


def _fills(run: RunSummary) -> bool:
    return run.tasks >= WINDOW or (run.kind == LEARN and run.status == RUNNING and (run.planned or 0) >= WINDOW)


def parts(run: RunSummary) -> list[dict[str, Any]]:
    """Return what an evaluation came to with memory and without."""
    sides = {"with memory": with_memory(run), "without memory": without_memory(run)}
    return [tile(name, count) for name, count in sides.items() if count[1]]
