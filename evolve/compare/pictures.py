"""Two pictures of a comparison: learning curves with the control, and a forest plot of the differences. Needs the
`plot` extra.
"""

from __future__ import annotations

from pathlib import Path

from evolve.compare.arms import ArmRole
from evolve.compare.comparison import Comparison
from evolve.compare.markdown_report import CURVES, FOREST
from evolve.loop.curve import WINDOW, moving_mean


def save(found: Comparison, folder: Path) -> tuple[Path, ...]:
    """Write the pictures into `folder` and return their paths; curves only where something learned."""
    made = [_forest(found, folder / FOREST)]
    if any(arm.curve for arm in found.arms):
        made.append(_curves(found, folder / CURVES))
    return tuple(made)


def _curves(found: Comparison, path: Path) -> Path:
    """Draw the success of each arm's stream as a moving mean over tasks, and over its lives."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    window = min((WINDOW, *(len(arm.curve) for arm in found.arms if arm.curve)))
    for arm in found.arms:
        if arm.curve:
            line = "-" if arm.role is ArmRole.COMPARED else "--"
            color = "grey" if arm.role is ArmRole.CONTROL else None
            shares = [share for share in moving_mean(arm.curve, window) if share is not None]
            tasks = range(window, len(arm.curve) + 1)
            axes.plot(
                tasks, shares, label=arm.name, linestyle=line, color=color, marker="." if len(shares) == 1 else ""
            )
    title = f"{found.repeated}, mean of {window} tasks"
    axes.set(xlabel="task of the stream", ylabel="success, %", ylim=(0, 102), title=title)
    figure.legend(loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)
    return path


def _forest(found: Comparison, path: Path) -> Path:
    """Draw each difference with its interval, the first contrast on top, and one dot for each cluster."""
    from matplotlib.figure import Figure

    rows = found.contrasts[::-1]
    figure = Figure(figsize=(8, 1.2 + 0.45 * max(1, len(rows))), layout="constrained")
    axes = figure.subplots()
    for at, contrast in enumerate(rows):
        difference = contrast.difference
        color = "black" if contrast.role is ArmRole.COMPARED else "grey"
        axes.plot([100 * difference.low, 100 * difference.high], [at, at], color=color)
        axes.plot([100 * difference.delta], [at], marker="s", color=color)
        axes.scatter(
            [100 * each for each in difference.clusters], [at] * len(difference.clusters), s=10, color=color, alpha=0.5
        )
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [contrast.candidate for contrast in rows])
    axes.set(
        xlabel=f"points of 100 against {found.arms[0].name}, 95 % interval",
        ylim=(-0.6, len(rows) - 0.4),
        title=f"{found.split}, n = {found.n} pairs",
    )
    figure.savefig(path, dpi=120)
    return path
