"""What is expected of tasks is rebuilt from a training's folder alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evolve.training.estimates import begin, estimates, outcomes
from evolve.training.ledger import HISTORY, append
from memory.records import Outcome, Task, Trajectory


def episode(task: str, success: bool | None) -> Trajectory:
    outcome = None if success is None else Outcome(success=success, reward=float(success))
    return Trajectory(task=Task(id=task, instruction="do"), outcome=outcome)


def test_outcomes_are_counted_by_task_and_ungraded_ones_are_not() -> None:
    some = [episode("a", True), episode("b", False), episode("a", False), episode("b", None)]
    assert outcomes(some) == {"a": (1, 2), "b": (0, 1)}


def test_estimates_begin_with_the_journal_and_move_with_each_iteration(tmp_path: Path) -> None:
    begin(tmp_path, lambda: {"a": (3, 8)})
    assert estimates(tmp_path).value("a") == pytest.approx(0.388889, abs=1e-6)
    assert not estimates(tmp_path).stats(["b"]).seen[0]
    append(tmp_path / HISTORY, {"iteration": 0, "episodes": [], "outcomes": {"a": [2, 4], "b": [0, 4]}})
    append(tmp_path / HISTORY, {"iteration": 1, "episodes": [], "outcomes": {"b": [1, 2]}})
    found = estimates(tmp_path)
    assert found.counts("a") == pytest.approx((0.96 * 3.111111 + 2, 0.96 * 4.888889 + 2), abs=1e-6)
    assert found.counts("b") == pytest.approx((0.96 * 0.48 + 1, 0.96 * (0.48 + 4) + 1), abs=1e-6)
    assert found.value("b") == pytest.approx(1.4608 / 6.7616, abs=1e-6)


def test_a_training_that_goes_on_keeps_what_it_began_with(tmp_path: Path) -> None:
    begin(tmp_path, lambda: {"a": (3, 8)})
    before = (tmp_path / "known.json").read_text()
    begin(tmp_path, lambda: {"a": (9, 9)})
    assert (tmp_path / "known.json").read_text() == before
    assert json.loads(before) == {"a": [3, 8]}


def test_a_history_written_before_outcomes_were_kept_is_read(tmp_path: Path) -> None:
    append(tmp_path / HISTORY, {"iteration": 0, "episodes": ["x"]})
    assert estimates(tmp_path).counts("a") == (0.5, 0.5)
