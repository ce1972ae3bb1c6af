"""Takes a workspace to a PostgreSQL server, and back into a file."""

from __future__ import annotations

from contextlib import closing

from evolve.config.model import Config, holds_password
from evolve.loop.assembly import DATABASE, register_kinds
from evolve.loop.runs import RUNNING, RunRecord
from memory.doctor import examine
from memory.episodes import runs
from memory.errors import BadInput, JournalError
from memory.journal import Journal
from memory.moving import fingerprint, move
from memory.records import Frozen

FILE = "sqlite"
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

    The source stays as it is. Raises `JournalError` while a run is in progress, and for what is not sound there;
    `BadInput` where the target holds a workspace.
    """
    register_kinds()
    file, database = config.workspace / DATABASE, "" if address == FILE else address
    if holds_password(address):
        raise BadInput("the address holds a password; write it to PGPASSWORD or ~/.pgpass")
    if database == config.memory.database:
        raise BadInput(f"the workspace is there already ({address}); name another place")
    config.workspace.mkdir(parents=True, exist_ok=True)
    with (
        closing(Journal(file, database=config.memory.database)) as source,
        closing(Journal(file, database=database)) as target,
    ):
        for record in map(RunRecord.model_validate, runs(source)):
            if record.status == RUNNING and source.engine.leased(record.run_id):
                raise JournalError(f"run {record.run_id!r} is in progress; wait for it or stop it, then move")
        count, sha256 = move(source, target), fingerprint(source)
        wrong = [finding.message for finding in examine(target) if finding.level == "error"]
        if fingerprint(target) != sha256:
            wrong.append("its events and texts are not those of the source")
        if wrong:
            raise JournalError(
                f"{target.engine.name}: what arrived is not sound ({wrong[0]}); use {source.engine.name}"
            )
        return Moved(source=source.engine.name, target=target.engine.name, events=count, sha256=sha256)
