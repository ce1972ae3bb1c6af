"""Shows a training while it happens: a growing table on a terminal, a line for each iteration or update elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from statistics import median

from rich.console import Console
from rich.live import Live
from rich.table import Table

from evolve.cli.output import plain

COLUMNS = {
    "iteration": "iteration",
    "epoch": "epoch",
    "update": "update",
    "success": "success",
    "reward": "reward",
    "written": "written",
    "valid": "valid",
    "skill_use": "skill use",
    "retries": "retries",
    "retries_better": "better",
    "branches": "branches",
    "loss": "loss",
    "entropy": "entropy",
    "rollout_kl": "KL",
    "staleness": "staleness",
    "stale": "stale",
    "seconds": "seconds",
    "left": "left",
}
"""Figure -> heading; all other figures are in the training's `metrics.jsonl`. `written`: tokens of an episode. Of
`trl_async`: how many updates the version of a row is old (`staleness`), how many rows were too old (`stale`)."""
RATES = ("success", "valid", "skill_use")
COUNTED = ("iteration", "epoch", "update", "retries", "retries_better", "branches", "stale")
ROWS = 15
"""Rows that stay on the screen."""


class Figures:
    """A reporter that draws. Use as a context manager; prints to stderr, so that stdout stays for results."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._clock, self._last = clock, 0.0
        self._rows: list[dict[str, str]] = []
        self._took: list[float] = []
        self._live = Live(console=self.console, auto_refresh=False)

    def __enter__(self) -> Figures:
        self._last = self._clock()
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def report(self, figures: Mapping[str, float]) -> None:
        """Draw the figures of one iteration or update."""
        now = self._clock()
        self._took.append(now - self._last)
        self._last = now
        told = dict(figures) | {"seconds": self._took[-1]}  # of the whole iteration, not of its update alone
        row = {name: _cell(name, told[name]) for name in COLUMNS if name in told}
        row["left"] = str(timedelta(seconds=round(self._left(figures))))
        self._rows = [*self._rows, row][-ROWS:]
        if self.console.is_terminal:
            self._live.update(self._table(), refresh=True)
        else:
            text = "  ".join(f"{COLUMNS[name]} {value}" for name, value in row.items())
            self.console.print(plain(text), markup=False, highlight=False, soft_wrap=True)

    def _left(self, figures: Mapping[str, float]) -> float:
        """Return the seconds that the rest will take, if it goes on as it mostly went."""
        if "iteration" in figures:
            return median(self._took) * (figures["iterations"] - figures["iteration"] - 1)
        return median(self._took) * (figures["updates"] - figures["update"])

    def _table(self) -> Table:
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        names = [name for name in COLUMNS if any(name in row for row in self._rows)]
        for name in names:
            drawn.add_column(COLUMNS[name], justify="right")
        for row in self._rows:
            drawn.add_row(*(row.get(name, "-") for name in names))
        return drawn


def _cell(name: str, value: float) -> str:
    if name in COUNTED:
        return str(int(value))
    return f"{value:.0%}" if name in RATES else f"{value:.3g}"
