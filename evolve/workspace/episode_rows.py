"""Runs and their episodes as rows, one episode whole, and what a run came to in figures."""

from __future__ import annotations

from evolve.loop.history import run_episodes
from evolve.loop.lives import life_with
from evolve.loop.report import Report
from evolve.loop.runs import load_run
from evolve.workspace.plain_rows import Rows
from memory.errors import NotFound
from memory.records import Frozen, Reflection, Trajectory
from memory.store import Store


class EpisodeRow(Frozen):
    """One episode in a line."""

    episode: str
    """Its id."""
    task: str
    arm: str
    """`main`, or the control it belongs to (`no_memory`, `aa`, ...)."""
    success: bool
    steps: int
    injected: int
    """Records that its prompt showed."""
    tokens: int


class EpisodeDetail(Frozen):
    """One episode whole, with what was reflected on it."""

    trajectory: Trajectory
    reflections: tuple[Reflection, ...]


class FigureRow(Frozen):
    """One part of a run, or one evaluation, in figures."""

    run_id: str
    part: str
    """`first half`, `second half`, `whole stream`, `without memory (sample)`, or the evaluated split with its arm."""
    tasks: int
    tgc: float
    """Share of tasks solved."""
    low: float
    high: float
    """Its 95 % interval."""
    sgc: float
    """Share of scenarios of which every task was solved."""
    reward: float | None
    coverage: float
    """Share of tasks that were graded."""
    steps: float
    tokens: float
    shown: float
    """Mean number of records in a prompt."""


def episodes(store: Store, run_id: str, *, failed: bool = False, limit: int = 50) -> Rows[EpisodeRow]:
    """Return the latest episodes of a run, in the order they were done; with `failed` only those not solved.

    Raises `NotFound` for a run that is neither an id nor a name.
    """
    found = Rows(
        EpisodeRow(
            episode=each.id,
            task=each.task_id,
            arm=each.arm,
            success=each.success,
            steps=each.steps,
            injected=each.shown,
            tokens=each.tokens,
        )
        for each in run_episodes(store, load_run(store, run_id).run_id)
        if not (failed and each.success)
    )
    return Rows(found[-limit:])


def episode(store: Store, name: str) -> EpisodeDetail:
    """Return an episode by its id; that of a comparison's life is read from there. Raises `NotFound`."""
    found = _found(store, name)
    if found is None:
        with life_with(store, name) as life:
            found = _found(life[0], name) if life else None
    if found is None:
        raise NotFound(f"no episode {name!r}; list them with `evolve logs list --run RUN`")
    return found


def figures(report: Report) -> Rows[FigureRow]:
    """Return what a report says in figures, a line for each part of the run and each evaluation."""
    parts = {
        "first half": report.first_half,
        "second half": report.second_half,
        "whole stream": report.whole,
        "without memory (sample)": report.control,
    }
    measured = [(name, metrics) for name, metrics in parts.items() if metrics]
    measured += [(f"{each.split} ({each.arm})", each.metrics) for each in report.evaluations]
    return Rows(
        FigureRow(
            run_id=report.run_id,
            part=part,
            tasks=m.tasks,
            tgc=m.tgc,
            low=m.interval.low,
            high=m.interval.high,
            sgc=m.sgc,
            reward=m.reward,
            coverage=m.coverage,
            steps=m.steps,
            tokens=m.tokens,
            shown=m.injected,
        )
        for part, m in measured
    )


def _found(store: Store, name: str) -> EpisodeDetail | None:
    """Return an episode and what was reflected on it."""
    found = store.trajectory(name)
    if found is None:
        return None
    made = store.reflections(found.run_id)
    return EpisodeDetail(trajectory=found, reflections=tuple(each for each in made if each.trajectory_id == name))
