"""Commands in processes that begin with everything imported: half of a short command's time is imports.

Such a process is forked from a server that has imported `evolve` and what its policies need; it has the arguments, the
folder, the variables and the streams of its own. What is neither `evolve` nor Python is started as usual.
"""

from __future__ import annotations

import atexit
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path

from docs.blocks import started

_server = get_context("forkserver")
_server.set_forkserver_preload(["tests.forked", "evolve.cli.main", "policies.local", "evolve.loop.session"])


def forked(command: list[str], folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with these variables; `evolve` and Python without starting an interpreter."""
    if command[0] not in ("evolve", "python", sys.executable):
        return started(command, folder, variables)
    with tempfile.TemporaryDirectory(prefix="evolve-forked-") as name:
        streams = [f"{name}/out", f"{name}/err"]
        process = _server.Process(target=_become, args=(command, folder, dict(variables), streams))
        process.start()
        process.join()
        out, err = (Path(stream).read_text(encoding="utf-8") for stream in streams)
    return subprocess.CompletedProcess(command, process.exitcode or 0, out, err)


def _become(command: list[str], folder: Path, variables: dict[str, str], streams: list[str]) -> None:
    """Be the command."""
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    for number, stream in enumerate((os.devnull, *streams)):
        os.dup2(os.open(stream, os.O_RDWR | os.O_CREAT), number)
    try:
        if command[0] == "evolve":
            _evolve(command)
        else:
            _python(command[1:])
    finally:
        sys.stdout.flush()
        atexit._run_exitfuncs()


def _evolve(command: list[str]) -> None:
    from evolve.cli.main import main

    sys.argv = command
    sys.path.insert(0, str(Path(sys.executable).parent))  # where the script stands, as Python sets it
    main()


def _python(arguments: list[str]) -> None:
    """Run `-c CODE`, `-m MODULE ...` or `FILE ...`."""
    what, *rest = arguments
    sys.path.insert(0, str(Path(what).parent) if what.endswith(".py") else "")
    if what == "-c":
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(rest[0])
            file.flush()
            sys.argv = ["-c"]
            runpy.run_path(file.name, run_name="__main__")
    elif what == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(what, run_name="__main__")
