"""The owner's background thread: opens Chroma when needed, probes, heals, carries the outbox over, releases everything.

It never answers instead of SQLite: a failure is recorded and shown by `doctor`, and search goes on exactly without it.
"""

from __future__ import annotations

import ctypes
import platform
import shutil
import time
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import structlog

from memory import outbox
from memory.errors import EmbedderMismatch, EvolveError, IndexCorrupt
from memory.health import probe, quarantine
from memory.journal import Journal
from memory.owner import Owner
from memory.protocols import Vector

if TYPE_CHECKING:
    from memory.indexes.chroma import ChromaIndex

EXACT_NUMBERS = 4_000_000
"""Numbers in a collection's vectors (10,416 vectors of 384) up to which they are all compared: 16 MB, which fit into
the cache of a processor, take 0.3 to 1 ms, and Chroma's graph takes more than that."""
PERTURB, FILLED = -6, 0x5A
"""glibc's M_PERTURB, and the byte that freed memory is filled with; what is given out is filled with its complement."""
POLL_SECONDS = 0.4
"""How often the owner looks for outbox rows that other processes wrote."""
SETTLE_SECONDS = 0.2
"""Wait before Chroma is first opened, so that a process that ends at once never pays for loading it."""
GATHER_SECONDS = 0.1
"""Wait for more rows before they are carried: Chroma takes a hundred in little more time than one, and its calls hold
up every other thread. Recall reads waiting rows from SQLite meanwhile."""
_ATTEMPTS = 2
"""How often one process rebuilds the index before it gives up and says so."""

_log = structlog.get_logger("evolve.index")


def large(vectors: int, dim: int) -> bool:
    """Return whether Chroma should be asked for the neighbours among so many vectors."""
    return vectors * dim > EXACT_NUMBERS


def overwrite_freed_memory() -> None:
    """Have the C library overwrite each block of memory that is freed or given out, from now on, in this process.

    Chroma's graph is written to disk with places that nobody has filled yet. They hold what stood in memory before: in
    one of thirty tries a vector of the index that was thrown away. glibc alone can do so (M_PERTURB).
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(PERTURB, FILLED)


class IndexWorker(Thread):
    """Keeps one Chroma directory equal to what SQLite says. Start it once, `stop` it once."""

    def __init__(self, database: Path, index_dir: Path, owner: Owner, *, model: str, dim: int) -> None:
        """Work on `index_dir`, which `owner` has locked already; the lock is given back by `stop`.

        It opens a connection of its own: one shared with the store would make both wait for each other's lock.
        """
        super().__init__(name="evolve-index", daemon=True)
        self.ready = Event()
        """Set while Chroma is open and healed."""
        self.hurry = Event()
        """Set while somebody waits for Chroma; otherwise other threads get every second time slice."""
        self.failure = ""
        self.healed = ""
        self.lag_seconds = 0.0
        self._database, self._dir, self._owner = database, index_dir, owner
        self._model, self._dim = model, dim
        self._index: ChromaIndex | None = None
        self._counts: dict[str, int] = {}
        self._use = Lock()
        self._woken, self._wanted, self._stopping, self._dropping = Event(), Event(), Event(), Event()
        self._changed_at: float | None = None
        self._rebuilds = 0

    def wake(self) -> None:
        """Say that outbox rows were written."""
        self._changed_at = self._changed_at or time.monotonic()
        self._woken.set()

    def want(self) -> None:
        """Ask for Chroma to be opened even though nothing waits."""
        if not self._wanted.is_set():
            self._wanted.set()
            self._woken.set()

    def serves(self, collection: str) -> bool:
        """Return whether a search of that collection should ask Chroma."""
        return self.ready.is_set() and large(self._counts.get(collection, 0), self._dim)

    def serves_any(self) -> bool:
        """Return whether there is a collection of which a search should ask Chroma."""
        return any(self.serves(collection) for collection in tuple(self._counts))

    def search(self, collection: str, vector: Vector, k: int) -> list[tuple[str, float]] | None:
        """Return Chroma's neighbours, or None when it is not open or failed just now (which `failure` then tells)."""
        with self._use:
            if self._index is None or not self.ready.is_set():
                return None
            try:
                return self._index.search(collection, vector, k)
            except IndexCorrupt as error:
                self.ready.clear()
                self.failure = str(error)
                _log.warning("index failed", reason=self.failure)
                return None

    def drop(self) -> None:
        """Close Chroma and delete its directory; it is opened anew when something waits."""
        overwrite_freed_memory()
        self._dropping.set()
        self._woken.set()
        while self._dropping.is_set() and self.is_alive():
            time.sleep(0.005)

    def stop(self) -> None:
        """Finish the step at hand, close Chroma, give the lock back."""
        self._stopping.set()
        self._woken.set()
        self.join()

    def run(self) -> None:
        """Work until stopped."""
        journal = Journal(self._database)
        try:
            while not self._stopping.is_set():
                self._woken.wait(POLL_SECONDS)
                self._woken.clear()
                self._round(journal)
        finally:
            if not self._stopping.is_set():
                self.failure = self.failure or "the index thread ended by an unexpected error; see the log"
            self.ready.clear()
            opened = self._index is not None
            self._release()
            journal.close()
            self._owner.release(clean=opened)

    def _round(self, journal: Journal) -> None:
        try:
            self._work(journal)
        except (EvolveError, OSError) as error:
            self._fail(str(error))

    def _work(self, journal: Journal) -> None:
        """Carry what waits. What is wrong with the directory is healed; what is wrong with the journal is raised."""
        try:
            if self._dropping.is_set():
                self._release()
                self.failure = ""
                try:
                    self._erase()
                finally:
                    self._dropping.clear()
            waiting = outbox.pending(journal)
            if self.failure or self._stopping.is_set() or not (waiting or self._wanted.is_set()):
                return
            index = self._index
            if index is None:
                if self._stopping.wait(SETTLE_SECONDS):
                    return
                index = self._open(journal)
            elif not self.hurry.is_set():
                self._stopping.wait(GATHER_SECONDS)
            self._carry(journal, index)
        except (IndexCorrupt, EmbedderMismatch) as error:
            self._start_over(journal, str(error))

    def _open(self, journal: Journal) -> ChromaIndex:
        if self._owner.dirty:
            wrong = probe(self._dir, self._database, model=self._model, dim=self._dim)
            if wrong:
                raise IndexCorrupt(f"after an unclean stop: {wrong}")
        from memory.indexes.chroma import ChromaIndex

        was_dirty = self._owner.dirty
        self._owner.mark_dirty()
        index = ChromaIndex(self._dir, model=self._model, dim=self._dim)
        with self._use:
            self._index = index
        outbox.reconcile(journal, index, thorough=was_dirty)
        return index

    def _carry(self, journal: Journal, index: ChromaIndex) -> None:
        moved = 0
        while not self._stopping.is_set() and not self._dropping.is_set():
            started = time.monotonic()
            moved += outbox.drain(journal, index, dim=self._dim)
            if outbox.pending(journal):
                if not self.hurry.is_set():
                    self._stopping.wait(max(GATHER_SECONDS, time.monotonic() - started))
                continue
            if moved and self._changed_at is not None:
                self.lag_seconds = time.monotonic() - self._changed_at
            self._changed_at = None
            if moved or not self.ready.is_set():
                self._counts = {name: index.count(name) for name in index.collections()}
            self.ready.set()
            return

    def _start_over(self, journal: Journal, reason: str) -> None:
        """Move the directory away and queue every vector for a new one."""
        self._release()
        self._rebuilds += 1
        if self._rebuilds > _ATTEMPTS:
            self._fail(reason)
            return
        for old in self._quarantined():
            shutil.rmtree(old, ignore_errors=True)
        moved = quarantine(self._dir)
        count = outbox.enqueue_all(journal)
        self.healed = f"rebuilt from {count} stored vectors, old files in {str(moved)!r}: {reason}"
        _log.warning("index rebuilt", vectors=count, quarantine=str(moved), reason=reason)
        self.failure = ""
        self._woken.set()

    def _erase(self) -> None:
        """Delete the directory, and those that were moved away earlier. Raises `OSError` where one cannot be.

        It is moved away first: what Chroma still writes then lands in what is deleted, not in what is made anew.
        """
        quarantine(self._dir)
        for old in self._quarantined():
            shutil.rmtree(old)

    def _quarantined(self) -> list[Path]:
        return list(self._dir.parent.glob(f"{self._dir.name}.quarantine-*"))

    def _fail(self, reason: str) -> None:
        self.ready.clear()
        self.failure = reason
        _log.warning("index failed, searching exactly", reason=reason)

    def _release(self) -> None:
        with self._use:
            self.ready.clear()
            if self._index is not None:
                self._index.close()
                self._index = None
