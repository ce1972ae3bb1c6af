"""`evolve train export`: a training's figures in trackio and MLflow, both without a network."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args

import pytest

from evolve.config.file import load_config
from evolve.config.training import TrainSection
from evolve.loop.runs import alone
from evolve.registry import members
from evolve.training import ledger, resumption, tracker_export, trackers
from tests.evolve.command import finish, invoke, start

NAME = "sage-0123456789"
FIGURES = [{"iteration": 0.0, "success": 0.25, "loss": 0.5}, {"iteration": 1.0, "success": 0.75, "loss": 0.125}]
NEEDED = {"trackio": ("trackio",), "mlflow": ("mlflow", "sqlalchemy", "alembic")}
READ = {
    "trackio": "import json, sqlite3, sys; from pathlib import Path;"
    "rows = sqlite3.connect(Path(sys.argv[1]) / 'evolve.db').execute('select run_name, step, metrics from metrics');"
    "print(json.dumps([[name, step, json.loads(told)] for name, step, told in rows]))",
    "mlflow": "import json, sys; from mlflow.tracking import MlflowClient;"
    "client = MlflowClient(sys.argv[1]);"
    "(run,) = client.search_runs([client.get_experiment_by_name('evolve').experiment_id]);"
    "of = lambda key: client.get_metric_history(run.info.run_id, key);"
    "print(json.dumps([[run.info.run_name, a.step, {'success': a.value, 'loss': b.value}]"
    " for a, b in zip(of('success'), of('loss'))]))",
}
"""Prints [name, step, figures] of what a tracker holds."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a training that told two iterations."""
    (tmp_path / "evolve.toml").write_text('[policy]\nname = "pocket"\n')
    place = tmp_path / ".evolve" / "policies" / "training" / NAME
    place.mkdir(parents=True)
    for each in FIGURES:
        ledger.append(place / ledger.METRICS, each)
    begun = resumption.Begun(recipe="sage", journal=False, start="base", config={"train": {"rank": 4}})
    resumption.note(place, begun)
    return tmp_path


@pytest.mark.parametrize("to", ["trackio", "mlflow"])
def test_what_was_exported_can_be_read_back(to: str, folder: Path) -> None:
    missing = [name for name in NEEDED[to] if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed (the extra `track`)")
    own = {"TRACKIO_DIR": str(folder / "tracked"), "MLFLOW_TRACKING_URI": "", "HF_HUB_OFFLINE": "1"}
    out, _ = finish(start(folder, "train", "export", NAME, "--to", to, "--json", **own))
    where = json.loads(out)["where"]
    read = subprocess.run([sys.executable, "-c", READ[to], where], capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
    expected = [[NAME, int(each["iteration"]), {k: each[k] for k in ("success", "loss")}] for each in FIGURES]
    assert json.loads(read.stdout) == expected
    assert str(folder) in where


class Noted:
    """A tracker of the test's own; it tells what came when."""

    where = "here"

    def __init__(self, workspace: Path, name: str, settings: dict[str, Any]) -> None:
        self.told: list[int] = []
        self.closed = False
        RUNS.append(self)

    def log(self, step: int, figures: dict[str, float]) -> None:
        self.told.append(step)

    def close(self) -> None:
        self.closed = True

    @staticmethod
    def packages() -> tuple[str, ...]:
        return ()


RUNS: list[Noted] = []


def test_a_training_is_followed_until_nobody_does_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("evolve.training.trackers.noted")
    monkeypatch.setattr(module, "MEMBER", Noted, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(tracker_export, "POLL_S", 0.01)
    place = folder / ".evolve" / "policies" / "training" / NAME
    config = load_config(folder / "evolve.toml")
    (place / ledger.METRICS).unlink()
    RUNS.clear()
    with ThreadPoolExecutor() as pool:
        with alone(place / ledger.LOCK, "taken"):
            done = pool.submit(tracker_export.export, config, NAME, cast(Any, "noted"), follow=True)
            ledger.append(place / ledger.METRICS, FIGURES[0])
            until(lambda: RUNS and RUNS[0].told == [0])
            ledger.keep(place / ledger.METRICS, 0)  # as after a kill: what no checkpoint knows is done again
            for each in FIGURES:
                ledger.append(place / ledger.METRICS, each)
            until(lambda: RUNS[0].told == [0, 1])
            assert not RUNS[0].closed
            assert not done.done()
        assert done.result(timeout=60) == "here"
    assert RUNS[0].told == [0, 1]
    assert RUNS[0].closed


def test_a_training_that_nobody_does_and_told_nothing_is_not_waited_for(folder: Path) -> None:
    (folder / ".evolve" / "policies" / "training" / NAME / ledger.METRICS).unlink()
    result = invoke(folder, "train", "export", NAME, "--to", "mlflow", "--follow")
    assert result.exit_code == 1
    assert "with figures" in result.stderr


def until(there: Callable[[], object]) -> None:
    """Wait for something that another thread does, a minute at most."""
    for _ in range(6000):
        if there():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come")


@pytest.mark.parametrize("to", ["trackio", "mlflow"])
def test_a_tracker_that_is_missing_is_named_with_its_extra(
    to: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    for name in NEEDED[to]:
        monkeypatch.setitem(sys.modules, name, None)
    result = invoke(folder, "train", "export", NAME, "--to", to)
    assert result.exit_code == 2
    assert f"{to} needs the package" in result.stderr
    assert "pip install 'evolve-agents[track]'" in result.stderr


def test_what_the_configuration_may_name_is_there() -> None:
    there = members(trackers)
    assert sorted(get_args(tracker_export.Tracker)) == there
    assert sorted(get_args(TrainSection.model_fields["tracker"].annotation)) == ["", *there]


def test_a_training_that_is_not_there_is_named(folder: Path) -> None:
    result = invoke(folder, "train", "export", "nosuch", "--to", "mlflow")
    assert result.exit_code == 1
    assert f"no training 'nosuch' with figures; there are {NAME}" in result.stderr
