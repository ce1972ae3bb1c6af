"""A checkpoint holds plain values: a crafted one runs no code, whoever imported langgraph first."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import ormsgpack
import pytest
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_POS_ARGS

from evolve.config.model import Config, RunSection
from evolve.loop.session import Parts, run
from policies.errors import PolicyUnavailable
from policies.protocols import Message, Reply, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.command import evolve_json, invoke, settings
from tests.evolve.toy_doors import Doors

EMBEDDED = """
import langgraph.checkpoint.serde.jsonplus
import sys
from evolve.cli.main import main
sys.argv = ["evolve", "resume", "--json"]
main()
"""
"""An application that has langgraph already when it comes to us."""


def resumed(folder: Path) -> subprocess.CompletedProcess[str]:
    """Resume the run of a workspace from such an application."""
    environment = {name: value for name, value in os.environ.items() if name != "LANGGRAPH_STRICT_MSGPACK"}
    command = [sys.executable, "-c", EMBEDDED]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_a_crafted_checkpoint_runs_nothing(tmp_path: Path) -> None:
    folder = settings(tmp_path / "work", more="\n[budget]\ncalls = 40\n")
    assert invoke(folder, "run").exit_code == 3
    settings(folder)
    marker = tmp_path / "ran"
    call = ormsgpack.packb(["os", "mkdir", [str(marker)]])
    crafted = ormsgpack.packb(ormsgpack.Ext(EXT_CONSTRUCTOR_POS_ARGS, call))
    database = sqlite3.connect(folder / ".evolve" / "checkpoints.db")
    with database:
        assert database.execute("UPDATE checkpoints SET type = 'msgpack', checkpoint = ?", (crafted,)).rowcount > 0
    database.close()
    ran = resumed(folder)
    assert ran.returncode != 0
    assert not marker.exists()


def test_an_honest_one_is_taken_up(tmp_path: Path) -> None:
    folder = settings(tmp_path, more="\n[budget]\ncalls = 40\n")
    assert invoke(folder, "run").exit_code == 3
    settings(tmp_path)
    ran = resumed(folder)
    assert ran.returncode == 0, ran.stderr
    assert evolve_json(folder, "report")["status"] == "done"


class Dying(ScriptedPolicy):
    """Answers six calls; whoever asks then is told after a moment that nobody is there."""

    def __init__(self) -> None:
        super().__init__(lambda messages, params: "open red x")
        self._asked = count()

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        if next(self._asked) >= 6:
            await asyncio.sleep(0.05)
            raise PolicyUnavailable("the server is gone")
        return await super().generate(messages, params)


def test_a_run_that_failed_leaves_its_checkpoints_free(tmp_path: Path) -> None:
    """Whoever keeps the error keeps the frames of a write that was cancelled, and with them SQLite's lock."""
    config = Config(root=tmp_path, run=RunSection(concurrency=4, batch_size=4, tasks=4))
    kept: list[BaseException] = []
    for _ in range(10):
        with pytest.raises(PolicyUnavailable) as failed:
            run(config, parts=Parts(environment=Doors(), policy=Dying()))
        kept.append(failed.value)
        with closing(sqlite3.connect(tmp_path / ".evolve" / "checkpoints.db", timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")
