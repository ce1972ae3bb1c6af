"""Two runs beside each other: what they were asked to do differently, what each came to, and the tasks they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evolve.config.tables import flat
from evolve.loop.history import WITH_MEMORY, WITHOUT_MEMORY, RunSummary, find_summary, run_episodes
from evolve.loop.runs import load_run
from evolve.statistics.clusters import Difference, compare, pairing
from memory.paging import EpisodeLine
from memory.records import Frozen
from memory.store import Store

UNTOLD = ("run.name", "run.tags")
"""Keys that decide nothing."""


class Against(Frozen):
    """One run against another, task by task where they share tasks. Positive = the second is better."""

    base: RunSummary
    other: RunSummary
    settings: dict[str, tuple[Any, Any]]
    """`section.key` -> (value of the first, value of the second), where they differ."""
    shared: int
    """Tasks that both did."""
    gained: tuple[str, ...]
    """Failed in the first, solved in the second."""
    lost: tuple[str, ...]
    difference: Difference | None
    """Over the shared tasks; None without any."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return a line for each figure."""
        names = ("tasks", "success", "mean_reward", "control_tasks", "control_success", "changes")
        figures = [(name.replace("_", " "), getattr(self.base, name), getattr(self.other, name)) for name in names]
        per_task = [
            (f"{name} per episode", _each(self.base, key), _each(self.other, key))
            for name, key in (("tokens", "tokens"), ("USD", "cost_usd"))
        ]
        return [{"figure": name, "first": a, "second": b} for name, a, b in (*figures, *per_task)]


def against(store: Store, base: str, other: str) -> Against:
    """Compare two runs. What was done with memory counts, of a run without any what it did. Raises `NotFound`."""
    runs = [load_run(store, each) for each in (base, other)]
    marks = [{task: each.success for task, each in last_episodes(store, run.run_id).items()} for run in runs]
    shared = [task for task in marks[0] if task in marks[1]]
    pairs = pairing("here", 0, shared, *marks) if shared else None
    return Against(
        base=find_summary(store, runs[0].run_id),
        other=find_summary(store, runs[1].run_id),
        settings=_settings(runs[0].config, runs[1].config),
        shared=len(shared),
        gained=pairs.gained if pairs else (),
        lost=pairs.lost if pairs else (),
        difference=compare([pairs]) if pairs else None,
    )


def lines(found: Against) -> list[str]:
    """Return the comparison as text for people, without its table."""
    said = [f"{key}: {a!r} -> {b!r}" for key, (a, b) in found.settings.items()]
    if found.difference is None:
        return [*said, "they share no task: nothing can be compared task by task"]
    d = found.difference
    return [
        *said,
        f"on the {found.shared} tasks of both: {100 * d.delta:+.1f} points [{100 * d.low:+.1f}, {100 * d.high:+.1f}], "
        f"{d.gained} gained, {d.lost} lost, p = {d.p:.2g} (exact McNemar)",
    ]


def last_episodes(store: Store, run_id: str) -> dict[str, EpisodeLine]:
    """Return task -> the last episode that a run did of it with memory; of a run without any, without memory."""
    episodes = run_episodes(store, run_id)
    shown = {each.task_id: each for each in episodes if each.arm in WITH_MEMORY}
    return shown or {each.task_id: each for each in episodes if each.arm in WITHOUT_MEMORY}


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    first, second = dict(flat(a)), dict(flat(b))
    keys = [key for key in dict.fromkeys((*first, *second)) if key not in UNTOLD]
    return {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}


def _each(run: RunSummary, name: str) -> float | None:
    return getattr(run, name) / run.episodes if run.episodes else None
