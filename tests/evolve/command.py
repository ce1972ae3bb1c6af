"""Drives the `evolve` command in tests: in this process through typer's runner, and as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner, Result

from evolve.cli.main import app

typer.testing._get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]  # else a tenth of a second a call
ROOT = Path(__file__).resolve().parents[2]
TASKS = 16
SETTINGS = """\
[run]
tasks = {tasks}
batch_size = 4
concurrency = 4

[policy]
name = "evolve.environments.office.worker:worker"
model = "3"

[environment]
name = "office"
deployment = 3
max_steps = 16

[memory]
index = "{index}"

[playbook]
reflector = "rules"
curator = "direct"
"""
"""An office whose scripted worker learns without a model."""


def settings(folder: Path, *, tasks: int = TASKS, index: str = "exact", more: str = "") -> Path:
    """Write evolve.toml into `folder` and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evolve.toml").write_text(SETTINGS.format(tasks=tasks, index=index) + more)
    return folder


def invoke(folder: Path, *arguments: str) -> Result:
    """Run the command in `folder` in this process; a bug is raised, whatever ends with an exit code is returned."""
    with chdir(folder):
        result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def evolve(folder: Path, *arguments: str, code: int = 0) -> str:
    """Return what the command printed on stdout; it must end with `code`."""
    result = invoke(folder, *arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def evolve_json(folder: Path, *arguments: str, code: int = 0) -> Any:
    """Return what the command printed with `--json`."""
    return json.loads(evolve(folder, *arguments, "--json", code=code))


def complaint(folder: Path, *arguments: str, code: int) -> str:
    """Return the one sentence on stderr of a command that must fail."""
    result = invoke(folder, *arguments)
    assert result.exit_code == code, result.output
    return one_sentence(result.stderr)


def one_sentence(stderr: str) -> str:
    """Return the message of an error that is one line and no traceback."""
    lines = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, stderr
    assert stderr.rstrip().endswith(lines[0]), stderr
    assert "Traceback" not in stderr
    return lines[0].removeprefix("error: ")


def start(folder: Path, *arguments: str, stdin: int | None = None, **environ: str) -> subprocess.Popen[str]:
    """Start the command as a process in `folder` that Ctrl-C reaches, also where the tests run in the background."""
    command = [str(Path(sys.executable).with_name("evolve")), *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        text=True,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `&` leaves it ignored
    )


def finish(process: subprocess.Popen[str], *, code: int = 0) -> tuple[str, str]:
    """Wait for a started command, which must end with `code`; return stdout and stderr."""
    out, err = process.communicate(timeout=1200)
    assert process.returncode == code, f"{process.returncode}\n{out}\n{err}"
    return out, err
