"""How a training is shown while it happens: a table on a terminal, lines elsewhere, and the time that is left."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console

from evolve.cli.train import ROWS, Figures

ITERATION = {"success": 0.25, "reward": 0.5, "written": 31.75, "valid": 0.9, "skill_use": 0.125, "iterations": 40.0}
UPDATE = {"loss": -0.01234, "entropy": 0.5, "rollout_kl": 0.0001, "seconds": 2.0}


def ticking(*moments: float) -> Iterator[float]:
    yield from moments


def drawn(reports: list[dict[str, float]], seconds: list[float], *, terminal: bool) -> str:
    moments = ticking(*seconds)
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=160, height=40, color_system=None)
    with Figures(lambda: next(moments), console) as shown:
        for figures in reports:
            shown.report(figures)
    return file.getvalue()


def test_elsewhere_each_iteration_is_a_line_with_the_time_that_is_left() -> None:
    reports = [ITERATION | UPDATE | {"iteration": float(at)} for at in (0, 1)]
    first, second = drawn(reports, [100, 190, 250], terminal=False).splitlines()
    assert first == (
        "iteration 0  success 25%  reward 0.5  written 31.8  valid 90%  skill use 12%  loss -0.0123  entropy 0.5  "
        "KL 0.0001  seconds 90  left 0:58:30"
    )
    assert second.startswith("iteration 1 ")
    assert second.endswith("seconds 60  left 0:47:30"), "38 iterations of 75 seconds, the median"


def test_an_iteration_without_an_update_is_shown_too_and_the_last_has_nothing_left() -> None:
    (line,) = drawn([ITERATION | {"iteration": 39.0}], [0, 10], terminal=False).splitlines()
    assert "loss" not in line
    assert line.endswith("left 0:00:00")


def test_updates_on_the_journal_are_counted_down() -> None:
    figures = UPDATE | {"epoch": 0.0, "update": 3.0, "updates": 18.0}
    (line,) = drawn([figures], [0, 4], terminal=False).splitlines()
    assert line.startswith("epoch 0  update 3  loss -0.0123")
    assert line.endswith("seconds 4  left 0:01:00")


def test_a_terminal_shows_a_table_of_the_last_rows() -> None:
    plain = ITERATION | {"iteration": 0.0}
    reports = [plain, *(ITERATION | UPDATE | {"iteration": float(at)} for at in range(1, ROWS + 3))]
    last = drawn(reports, [float(at) for at in range(ROWS + 4)], terminal=True)
    (heading, *rows) = last[last.rindex("iteration") :].splitlines()
    assert " ".join(heading.split()) == "iteration success reward written valid skill use loss entropy KL seconds left"
    assert [row.split()[0] for row in rows if row.strip() and row.split()[0].isdigit()] == [
        str(at) for at in range(3, ROWS + 3)
    ]
