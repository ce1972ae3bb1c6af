"""The walk with a real model goes on where it was stopped, and says in a sentence what ended it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.real.walk import called, learning_left, walk
from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from evolve.loop.runs import DONE, load_run, save_run
from evolve.loop.session import arun
from memory.errors import BadInput
from tests.evolve.command import settings


def test_learning_begins_goes_on_and_ends(tmp_path: Path) -> None:
    config = load_config(settings(tmp_path, tasks=4) / "evolve.toml")
    assert learning_left(config) == (("run",),)
    run_id = asyncio.run(arun(config)).run_id
    assert learning_left(config) == ()
    with open_store(config) as store:
        record = load_run(store, run_id)
        assert record.status == DONE
        save_run(store, record.model_copy(update={"status": "stopped"}))
    assert learning_left(config) == (("resume", run_id),)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(BadInput, match="is not empty, and no walk was begun there; name another folder"):
        walk(tmp_path)


def test_a_command_that_fails_is_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match=r"`evolve report` ended with status \d; what it said stands above"):
        called(["report"], tmp_path)
    assert "evolve init" in capfd.readouterr().err
