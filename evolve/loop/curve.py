"""The learning curve: success of the stream as a moving mean, drawn in the terminal and written as PNG.

A mean of fewer tasks than its window holds says little and jumps, so the curve begins where the first window is full. A
stream shorter than one window is drawn as the number of tasks solved so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

WINDOW = 12
"""Tasks a point of the curve averages over."""


def moving_mean(passed: Sequence[float], window: int = WINDOW) -> list[float | None]:
    """Return, for each task, the mean of it and the `window` - 1 before it, in percent; None until a window is full."""
    return [
        100 * sum(passed[end - window : end]) / window if end >= window else None for end in range(1, len(passed) + 1)
    ]


def solved_so_far(passed: Sequence[bool]) -> list[float | None]:
    """Return, for each task, how many were solved up to it."""
    return [float(sum(passed[:end])) for end in range(1, len(passed) + 1)]


def draw(passed: Sequence[bool], control: float | None, width: int = 72) -> str:
    """Return the curve as text; `control` is the success without memory in percent."""
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(width, 14)
    tasks, shares = _points(passed)
    plotext.plot(tasks, shares, marker="braille")
    plotext.xlabel("task")
    plotext.xlim(1, max(len(passed), 2))
    plotext.xticks(_ticks(1, len(passed)))
    if len(passed) < WINDOW:
        plotext.ylim(0, len(passed))
        plotext.yticks(_ticks(0, len(passed)))
        plotext.title(f"tasks solved so far, of {len(passed)}")
        return str(plotext.uncolorize(plotext.build()))
    if control is not None:
        plotext.hline(control)
    plotext.ylim(0, 100)
    plotext.yticks(range(0, 101, 20))
    plotext.title(f"success, mean of {WINDOW} tasks, %" + ("" if control is None else " (line: without memory)"))
    return str(plotext.uncolorize(plotext.build()))


def save(path: Path, passed: Sequence[bool], control: float | None, title: str) -> None:
    """Write the curve as PNG. Needs matplotlib (the `plot` extra)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    tasks, shares = _points(passed)
    if len(passed) < WINDOW:
        axes.plot(tasks, shares, marker="o", label="with memory")
        axes.set(xlabel="task", ylabel="tasks solved so far", ylim=(0, len(passed) + 0.2), title=title)
    else:
        axes.plot(tasks, shares, marker="o" if len(tasks) == 1 else None, label=f"with memory (mean of {WINDOW})")
        if control is not None:
            axes.axhline(control, linestyle="--", color="grey", label="without memory")
        axes.set(xlabel="task", ylabel="success, %", xlim=(0, len(passed) + 1), ylim=(0, 102), title=title)
    axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _points(passed: Sequence[bool]) -> tuple[list[int], list[float]]:
    """Return the tasks that have a point, counted from 1, and their values."""
    values = solved_so_far(passed) if len(passed) < WINDOW else moving_mean(passed)
    found = [(task, value) for task, value in enumerate(values, start=1) if value is not None]
    return [task for task, _ in found], [value for _, value in found]


def _ticks(first: int, last: int, most: int = 6) -> list[int]:
    """Return whole numbers from `first` to `last`, evenly spaced: tasks are counted."""
    step = max(1, -(-(last - first) // most))
    return list(range(first, last + 1, step))
