"""A checkpoint holds plain values: a crafted one runs no code, whoever imported langgraph first."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_POS_ARGS

from tests.evolve.command import evolve_json, invoke, settings

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
