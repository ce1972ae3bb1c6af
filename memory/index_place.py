"""Place of the vector index of a workspace, and who may write to it: a folder of one process, or a server of all.

Each kind of index is a file of `memory.indexes`. `chroma` stands in a folder that one process of one machine owns;
what is kept on a server can be searched by every process, and whichever holds the lease carries changes to it.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from memory.errors import BadInput, IndexCorrupt, IndexLocked, IndexUnavailable
from memory.health import probe, quarantine
from memory.index_kinds import index_class
from memory.indexes import EXACT, FOLDER
from memory.journal import Journal
from memory.locks import Owner
from memory.outbox import ListableIndex

LEASE = "index"
AGAIN_SECONDS = 10.0
"""After a server failed, it is asked again so much later."""
VECTORS_STAY = (
    "what was erased is gone from the journal, and its vectors may still be in the index: do the same once more when "
    "this is mended"
)


class Place(Protocol):
    """What the index's thread has to know of where it works."""

    kind: str
    """The file of `memory.indexes`."""
    made_by: tuple[str, int]
    """The embedder: its model, and the length of its vectors."""
    again_seconds: float | None
    """When a failure is tried again; None = not in this process."""

    def open(self) -> tuple[ListableIndex, bool]:
        """Return the index, and whether it has to be compared with the journal id by id.

        Raises `IndexCorrupt`, `IndexUnavailable`, `EmbedderMismatch`.
        """
        ...

    def writing(self, journal: Journal) -> AbstractContextManager[bool]:
        """Hold the right to write to it; give False where another process does."""
        ...

    def start_over(self) -> str:
        """Take what is there out of the way, and say where it is now; the index is closed."""
        ...

    def erase(self) -> None:
        """Delete what is there, and what was taken out of the way earlier; the index is closed. Raises `OSError`."""
        ...

    def release(self, *, clean: bool) -> None:
        """Give it up for good; the index is closed."""
        ...


class IndexFolder:
    """A Chroma directory that this process owns."""

    kind = FOLDER
    again_seconds: float | None = None

    def __init__(self, folder: Path, owner: Owner, database: Path, *, model: str, dim: int) -> None:
        """Keep the index in `folder`, which `owner` has locked already; the lock is given back by `release`."""
        self._folder, self._owner, self._database, self.made_by = folder, owner, database, (model, dim)

    def open(self) -> tuple[ListableIndex, bool]:
        """Open Chroma; after an unclean stop it is probed first, in a process of its own."""
        was_dirty = self._owner.dirty
        model, dim = self.made_by
        if was_dirty and (wrong := probe(self._folder, self._database, model=model, dim=dim)):
            raise IndexCorrupt(f"after an unclean stop: {wrong}")
        from memory.indexes.chroma import ChromaIndex

        self._owner.mark_dirty()
        return ChromaIndex(self._folder, model=model, dim=dim), was_dirty

    def writing(self, journal: Journal) -> AbstractContextManager[bool]:
        """Give True: the owner alone has this place."""
        return nullcontext(True)

    def start_over(self) -> str:
        """Move the directory away."""
        for old in self._quarantined():
            shutil.rmtree(old, ignore_errors=True)
        return f", old files in {str(quarantine(self._folder))!r}"

    def erase(self) -> None:
        """Delete the directory, and those that were moved away earlier.

        It is moved away first: what Chroma still writes then lands in what is deleted, not in what is made anew.
        """
        quarantine(self._folder)
        for old in self._quarantined():
            shutil.rmtree(old)

    def release(self, *, clean: bool) -> None:
        """Give the lock back."""
        self._owner.release(clean=clean)

    def _quarantined(self) -> list[Path]:
        return list(self._folder.parent.glob(f"{self._folder.name}.quarantine-*"))


class ServedIndex(ListableIndex, Protocol):
    """An index on a server. It is made without a word to the server."""

    def connect(self) -> None:
        """Connect, again after `close`. Raises `IndexUnavailable`."""
        ...

    def erase(self) -> None:
        """Delete all collections of this workspace."""
        ...


class IndexServer:
    """An index on a server, which every process of the workspace may search."""

    again_seconds: float | None = AGAIN_SECONDS

    def __init__(self, kind: str, index: ServedIndex, *, model: str, dim: int) -> None:
        self.kind, self._index, self.made_by = kind, index, (model, dim)

    def open(self) -> tuple[ListableIndex, bool]:
        """Connect."""
        self._index.connect()
        return self._index, False

    def writing(self, journal: Journal) -> AbstractContextManager[bool]:
        """Hold the workspace's lease of the index."""
        return journal.engine.lease(LEASE)

    def start_over(self) -> str:
        """Delete what is there: it can be read by nobody."""
        self.erase()
        return ""

    def erase(self) -> None:
        """Delete what is there."""
        self._index.connect()
        try:
            self._index.erase()
        finally:
            self._index.close()

    def release(self, *, clean: bool) -> None:
        """Do nothing: others go on."""


def erase_unowned(journal: Journal) -> None:
    """Delete the folder, or pgvector's tables, of an index that this process does not keep.

    Raises `IndexLocked` where another one does, `IndexUnavailable` where it cannot be deleted.
    """
    if journal.database and journal.query("SELECT to_regclass('index_collections')") != [(None,)]:
        from memory.indexes.pgvector import PgvectorIndex

        left = PgvectorIndex("", journal.database, model="", dim=1)
        try:
            left.connect()
            left.erase()
        except IndexUnavailable as error:
            raise IndexUnavailable(f"{VECTORS_STAY}: {error}") from error
        finally:
            left.close()
    folder = journal.path.parent / "index"
    if not journal.database and (folder.exists() or any(folder.parent.glob(f"{folder.name}.quarantine-*"))):
        holder = Owner(folder)
        try:
            holder.acquire()
        except IndexLocked as error:
            raise IndexLocked(f"{VECTORS_STAY}: {error}") from error
        place = IndexFolder(folder, holder, journal.path, model="", dim=0)
        try:
            place.erase()
        except OSError as error:
            raise IndexUnavailable(f"{VECTORS_STAY}: {error}") from error
        finally:
            place.release(clean=True)


def find_place(named: str, journal: Journal, *, model: str, dim: int, owner: bool) -> Place | None:
    """Return where a workspace keeps the index that `memory.index` names (`kind` or `kind:address`).

    None where this process searches exactly: `exact`, a journal that is only read, and a folder that it shall not own.
    Raises `BadInput` for an index that cannot be kept so, and `IndexLocked` for a folder of another process.
    """
    kind, _, address = named.partition(":")
    if kind == EXACT or journal.read_only:
        return None
    if kind != FOLDER:
        made = index_class(kind)(address, journal.database, model=model, dim=dim)
        return IndexServer(kind, made, model=model, dim=dim)
    if journal.database:
        raise BadInput(
            f"index {kind!r} is a folder of one machine, and `memory.database` is for several; write `index = "
            '"exact"`, "pgvector", or one with the address of a server in [memory]'
        )
    if not owner:
        return None
    folder = journal.path.parent / "index"
    holder = Owner(folder)
    holder.acquire()
    return IndexFolder(folder, holder, journal.path, model=model, dim=dim)
