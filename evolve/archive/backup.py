"""Backs up a workspace while it is in use: database, policies and curves in a dated folder that was checked.

The vector index, checkpoints, traces and logs are left out: they are made again, or worth nothing without their run.
So are the checkpoints of trainings, and weights in other forms for servers: they are gigabytes that change meanwhile. A
restored training keeps its settings, figures, rollouts and adapter, and begins anew where its command is given again.
The adapters of generations all come along. The folder has the shape of a workspace, so that restoring it is copying it
into place.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from evolve.archive.transfer import copy_settings, copy_workspace, require_workspace, sha256_of
from evolve.config.file import FILE
from evolve.config.model import Config
from evolve.generations.workspace_registry import FOLDER as POLICIES
from evolve.generations.workspace_registry import TRAININGS
from evolve.loop.assembly import DATABASE
from memory.doctor import examine, held
from memory.errors import BadInput, JournalError
from memory.journal import Journal
from memory.records import Frozen
from memory.sqlite.database import copy_database

DEFAULT = "backups"
"""Folder beside evolve.toml that backups go to."""
PREFIX = "evolve-"
RUNS = "runs"
_NEVER = ("*.db", "*.db-wal", "*.db-shm", "*.lock", "*.tmp")
"""Databases, which are copied in their own way, and what is of this moment only."""
_CONVERTED = ("gguf", "*.new")
"""Beside the generations: adapters as llama.cpp reads them, made again when they are served."""
_OF_TRAININGS = ("*.pt", "*.gguf", "served", "replies-*", "*.new")
"""Checkpoints, what servers were given, and the replies that a training goes on with from a checkpoint."""
_RESTORE = "RESTORE.txt"
_HOW = """\
A backup of an evolve workspace, made {made}. To restore it:

1. Stop every process that uses the workspace.
2. Move the folder {workspace} away; do not delete it yet.
3. Copy this folder to its place: cp -r {name} {workspace}
4. Run: evolve memory doctor

The vector index is made again by itself. A training that had not ended begins anew: its checkpoints are not here.
{settings} is the settings file, with index = "exact" where the index was on a server.
"""
_HOW_FROM_SERVER = """\
A backup of an evolve workspace on a server, made {made}. It is a file, not on a server. To restore it:

1. Stop every process that uses the workspace.
2. Move the folder {workspace} away; do not delete it yet.
3. Copy this folder to its place: cp -r {name} {workspace}
4. Take `database` out of [memory] in {root}/{settings}: this copy is not read while it stands there. Write
   index = "exact" there where `index` is "pgvector".
5. Run: evolve memory doctor
6. For a server again: evolve workspace move --to ADDRESS, where no workspace is yet.

The vector index is made again by itself. A training that had not ended begins anew: its checkpoints are not here.
{settings} is the settings file without the server.
"""


class Backup(Frozen):
    """A finished backup."""

    path: str
    sha256: str
    """Of its database."""
    records: int
    episodes: int
    files: int
    bytes: int


def make_backup(config: Config, destination: Path | None = None) -> Backup:
    """Write a dated folder below `destination` and check it: integrity, then the database against its own journal.

    Writers may go on meanwhile; the copy is of one moment. Half a backup keeps a name that begins with a dot. Raises
    `NotFound` without a workspace, `BadInput` where the workspace itself is the destination, `JournalError` for a
    copy that is not sound.
    """
    require_workspace(config)
    home = (destination or config.root / DEFAULT).resolve()
    if home.is_relative_to(config.workspace.resolve()):
        raise BadInput(f"got {str(home)!r}, inside the workspace; name a folder elsewhere, best on another disk")
    made = datetime.now(UTC)
    final = home / f"{PREFIX}{made:%Y%m%dT%H%M%S%fZ}"
    half = final.with_name(f".{final.name}.half")
    half.mkdir(parents=True)
    try:
        copy_workspace(config, half / DATABASE)
        _copy_rest(config, half)
        records, episodes = _checked(half / DATABASE)
        (half / _RESTORE).write_text(_how(config, made, final.name), encoding="utf-8")
        half.rename(final)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise
    files = [path for path in final.rglob("*") if path.is_file()]
    return Backup(
        path=str(final),
        sha256=sha256_of(final / DATABASE),
        records=records,
        episodes=episodes,
        files=len(files),
        bytes=sum(path.stat().st_size for path in files),
    )


def _how(config: Config, made: datetime, name: str) -> str:
    """Return how a backup is restored."""
    text = _HOW_FROM_SERVER if config.memory.database else _HOW
    when = f"{made:%Y-%m-%d %H:%M} UTC"
    return text.format(made=when, workspace=config.workspace, name=name, root=config.root, settings=FILE)


def kept(config: Config) -> list[Path]:
    """Return the databases of the backups in the default place, oldest first."""
    return sorted((config.root / DEFAULT).glob(f"{PREFIX}*/{DATABASE}"))


def _copy_rest(config: Config, half: Path) -> None:
    """Copy policies and curves, but for what `_left_out` names.

    Databases go first: what they name is still there when the files follow.
    """
    for database in sorted((config.workspace / POLICIES).rglob("*.db")):
        copy = half / database.relative_to(config.workspace)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy_database(database, copy)
    skipped = partial(_left_out, config.workspace / POLICIES)
    for name in (POLICIES, RUNS):
        if (config.workspace / name).is_dir():
            shutil.copytree(config.workspace / name, half / name, ignore=skipped, dirs_exist_ok=True)
    copy_settings(config, half / FILE)


def _left_out(policies: Path, folder: str, names: list[str]) -> set[str]:
    """Return which of the names in a folder are not copied; none that may be of a generation's adapter."""
    trainings, place, patterns = policies / TRAININGS, Path(folder), _NEVER
    if place == policies:
        patterns += _CONVERTED
    elif trainings in (place, *place.parents):
        patterns += _OF_TRAININGS
    return shutil.ignore_patterns(*patterns)(folder, names)


def _checked(database: Path) -> tuple[int, int]:
    """Return how many records and episodes a copy holds. Raises `JournalError` for one that is not sound."""
    with closing(Journal(database)) as journal:
        wrong = [finding for finding in examine(journal) if finding.level == "error"]
        if wrong:
            raise JournalError(
                f"no backup was made: the workspace itself is damaged ({wrong[0].message}); {wrong[0].fix}. "
                "Earlier backups are untouched"
            )
        counts = held(journal)
    database.with_name(f"{database.name}.migrate.lock").unlink(missing_ok=True)
    return counts
