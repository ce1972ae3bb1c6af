"""`train.tracker`: a training's figures go to a tracker while it goes on. What fails there stops no training."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest

from benchmarks.parity_world import PLAYED
from evolve.config.file import load_config
from evolve.training import ledger, tracker_export
from evolve.training.training_session import train
from tests.evolve.command import finish, invoke, start
from tests.evolve.training.test_cli_train import told

pytestmark = pytest.mark.slow
SETTINGS = f"""\
{PLAYED}
[train]
rank = 2
iterations = 2
chains = 1
rollouts = 2
length = 1
skills = false
filter = "everything"
echo = 0.1
"""
TRACKED = ("--set", "train.tracker=trackio")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    return tmp_path


def trackio(monkeypatch: pytest.MonkeyPatch, log: Callable[[dict[str, float], int], None]) -> list[Any]:
    """Stand in for the package trackio; return where its calls are noted. `log` is called before one is."""
    calls: list[Any] = []

    def logged(figures: dict[str, float], step: int) -> None:
        log(figures, step)
        calls.append((step, figures))

    module, utils = ModuleType("trackio"), ModuleType("trackio.utils")
    module.__spec__ = ModuleSpec("trackio", None)
    given = {"init": lambda **told: calls.append(told["name"]), "log": logged, "finish": lambda: calls.append("end")}
    vars(module).update(given)
    vars(utils)["TRACKIO_DIR"] = "here"
    monkeypatch.setitem(sys.modules, "trackio", module)
    monkeypatch.setitem(sys.modules, "trackio.utils", utils)
    monkeypatch.setattr(tracker_export, "POLL_S", 0.01)
    return calls


def test_figures_are_told_while_the_training_goes_on_whose_name_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = folder / ".evolve" / "policies" / "training"
    calls = trackio(monkeypatch, lambda figures, step: None)
    result = invoke(folder, "train", "run", *TRACKED)
    assert result.exit_code == 0, result.output
    (row,) = told(folder, "train", "status")
    assert result.stderr.startswith(f"training {row['training']};")
    lines = ledger.lines(places / row["training"] / ledger.METRICS)
    steps = [(int(each.pop("iteration")), each) for each in lines]
    assert calls == [row["training"], *steps, "end"]
    plain = told(folder, "train", "run")
    assert plain["name"] == row["training"], "who watches a training makes no other one of it"


def test_a_figure_is_told_before_the_next_update(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told_of, waited = Event(), list[bool]()
    trackio(monkeypatch, lambda figures, step: told_of.set())
    config = load_config(folder / "evolve.toml", {"train": {"tracker": "trackio"}})
    train(config, "grpo", lambda figures: waited.append(told_of.wait(600)))
    assert waited == [True, True]


def test_a_tracker_that_fails_is_warned_of_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(figures: dict[str, float], step: int) -> None:
        raise OSError(f"no room for step {step}")

    calls = trackio(monkeypatch, broken)
    result = invoke(folder, "train", "run", *TRACKED)
    assert result.exit_code == 0, result.output
    assert "policy-v1 is a candidate after 2 updates" in result.stdout
    assert result.stderr.count("trackio failed") == result.stderr.count("no room for step 0") == 1
    assert calls[1:] == ["end"]


def test_one_that_is_missing_is_refused_before_anything_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    result = invoke(folder, "train", "run", *TRACKED)
    assert result.exit_code == 2
    assert "trackio needs the package 'trackio': pip install 'evolve-agents[track]'" in result.stderr
    assert not (folder / ".evolve").exists()
    assert invoke(folder, "train", "run", "--set", "train.tracker=wandb").exit_code == 2


def test_one_that_went_missing_is_refused_where_a_training_is_gone_on_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trackio(monkeypatch, lambda figures, step: None)
    place = Path(told(folder, "train", "run", *TRACKED)["folder"])
    (place / "adapter").rename(place / "elsewhere")  # as where it was killed before
    monkeypatch.setitem(sys.modules, "trackio", None)
    (folder / "evolve.toml").write_text(f'{SETTINGS}tracker = "trackio"\n')
    result = invoke(folder, "train", "resume")
    assert result.exit_code == 2
    assert "trackio needs the package 'trackio'" in result.stderr
    (folder / "evolve.toml").write_text(SETTINGS)
    assert invoke(folder, "train", "resume").exit_code == 0, "who watches it is said anew"


def test_trackio_itself_is_told(folder: Path) -> None:
    if find_spec("trackio") is None:
        pytest.skip("trackio is not installed (the extra `track`)")
    _, said = finish(start(folder, "train", "run", *TRACKED, TRACKIO_DIR=str(folder / "tracked"), HF_HUB_OFFLINE="1"))
    (row,) = told(folder, "train", "status")
    exported = told(folder, "train", "curves", row["training"])["figures"]
    import sqlite3

    with sqlite3.connect(folder / "tracked" / "evolve.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    assert [(name, step) for name, step, _ in rows] == [(row["training"], at) for at in range(len(exported))], said
    assert [json.loads(metrics)["loss"] for *_, metrics in rows] == [each["loss"] for each in exported]
