"""The learning curve: success of the stream as a moving mean, drawn in the terminal and written as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

WINDOW = 12
"""Tasks a point of the curve averages over."""


def moving_mean(passed: Sequence[bool], window: int = WINDOW) -> list[float]:
    """Return, for each task, the share of successes among it and the `window` - 1 before it, in percent."""
    points: list[float] = []
    for end in range(1, len(passed) + 1):
        recent = passed[max(0, end - window) : end]
        points.append(100 * sum(recent) / len(recent))
    return points


def draw(passed: Sequence[bool], control: float | None, width: int = 72) -> str:
    """Return the curve as text; `control` is the success without memory in percent."""
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(width, 14)
    plotext.plot(range(1, len(passed) + 1), moving_mean(passed), marker="braille")
    if control is not None:
        plotext.hline(control)
    plotext.ylim(0, 100)
    plotext.title(f"success, mean of {WINDOW} tasks, %" + ("" if control is None else " (line: without memory)"))
    plotext.xlabel("task")
    return str(plotext.uncolorize(plotext.build()))


def save(path: Path, passed: Sequence[bool], control: float | None, title: str) -> None:
    """Write the curve as PNG. Needs matplotlib (the `plot` extra)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(passed) + 1), moving_mean(passed), label=f"with memory (mean of {WINDOW})")
    if control is not None:
        axes.axhline(control, linestyle="--", color="grey", label="without memory")
    axes.set(xlabel="task", ylabel="success, %", ylim=(0, 102), title=title)
    axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
