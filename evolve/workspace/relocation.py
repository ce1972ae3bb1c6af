"""Takes a workspace to a PostgreSQL server, and back into a file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from evolve.config.model import Config
from evolve.loop.assembly import DATABASE, register_kinds
from evolve.loop.runs import RUNNING, RunRecord
from memory.base import now
from memory.episodes import runs
from memory.errors import BadInput, JournalError
from memory.journal import Journal
from memory.moving import move
from memory.records import Frozen
from memory.redact import holds_password
from memory.sqlite.database import logs_of

SQLITE = "sqlite"
"""The address that means the file in the workspace's folder."""


class Moved(Frozen):
    """What arrived where."""

    source: str
    target: str
    events: int
    sha256: str
    """Of all events and texts, the same in both."""


def move_workspace(config: Config, address: str) -> Moved:
    """Copy the configured workspace to an address, and check there that it is the same and sound.

    The source stays as it is. Where a file of the workspace is in the way, it is kept under another name. Raises
    `JournalError` while a run is in progress, and for what is not sound there; `BadInput` where a server holds a
    workspace there already.
    """
    register_kinds()
    file = config.workspace / DATABASE
    if holds_password(address):
        raise BadInput("the address holds a password; write it to PGPASSWORD or ~/.pgpass")
    if ("" if address == SQLITE else address) == config.memory.database:
        raise BadInput(f"the workspace is there already ({address}); name another place")
    config.workspace.mkdir(parents=True, exist_ok=True)
    with closing(Journal(file, database=config.memory.database)) as source:
        for record in map(RunRecord.model_validate, runs(source)):
            if record.status == RUNNING and source.leased(record.run_id):
                raise JournalError(f"run {record.run_id!r} is in progress; wait for it or stop it, then move")
        if address == SQLITE:
            count, sha256 = _to_file(source, file)
            return Moved(source=source.engine.name, target=str(file), events=count, sha256=sha256)
        with closing(Journal(file, database=address)) as target:
            count, sha256 = move(source, target)
            return Moved(source=source.engine.name, target=target.engine.name, events=count, sha256=sha256)


def _to_file(source: Journal, file: Path) -> tuple[int, str]:
    """Move to a new file beside the place, then put it there.

    The vector index is of before, and goes first: an opener that finds none makes it anew, while one that finds an old
    one would take its vectors for those of the new records, whose ids may be the same.
    """
    with TemporaryDirectory(dir=file.parent, prefix="moving-", ignore_cleanup_errors=True) as folder:
        made = Path(folder) / file.name
        _let_go(file)
        with closing(Journal(made)) as target:
            moved = move(source, target)
        _let_go(file)
        if file.exists():
            file.rename(file.with_name(f"{file.name}.before-{now():%Y%m%dT%H%M%SZ}"))
        index = file.parent / "index"
        if index.exists():
            index.rename(Path(folder) / index.name)
        made.rename(file)
    return moved


def _let_go(file: Path) -> None:
    """Bring what the log of the old file holds into it. Raises `JournalError` where the log stays: it is in use."""
    if file.exists():
        Journal(file).close()
    if logs := " and ".join(log.name for log in logs_of(file)):
        raise JournalError(
            f"{str(file)!r} is open in another process (it left {logs}), and SQLite would mix it with what arrives; "
            "close what uses the old file (`evolve ui`, `evolve serve`, an agent), then move again"
        )
