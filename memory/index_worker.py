"""The index's background thread: opens it when needed, heals it, carries the outbox over, releases everything.

It never answers instead of the journal: a failure is recorded and shown by `doctor`, and search goes on exactly without
the index.
"""

from __future__ import annotations

import ctypes
import logging
import platform
import time
from collections.abc import Callable
from threading import Event, Lock, Thread

from memory import outbox
from memory.errors import EmbedderMismatch, EvolveError, IndexCorrupt, IndexUnavailable
from memory.index_place import VECTORS_STAY, Place
from memory.journal import Journal
from memory.outbox import ListableIndex
from memory.protocols import Vector

EXACT_NUMBERS = 25_000_000
"""Numbers in a collection's vectors (97,656 vectors of 256) up to which they are all compared. That takes 5 ms on two
cores and 100 MB in each process. Of so many Chroma's graph finds 93 % of the ten nearest in as long, and pgvector's
90 % in 15 ms (docs/LOG.md)."""
PERTURB, FILLED = -6, 0x5A
"""glibc's M_PERTURB, and the byte that freed memory is filled with; what is given out is filled with its complement."""
POLL_SECONDS = 0.4
"""How often a process looks for outbox rows that others wrote."""
SETTLE_SECONDS = 0.2
"""Wait before the index is first opened, so that a process that ends at once never pays for loading Chroma."""
GATHER_SECONDS = 0.1
"""Wait for more rows before they are carried: Chroma takes a hundred in little more time than one, and its calls hold
up every other thread. Recall reads waiting rows from SQLite meanwhile."""
LEASE_SECONDS = 5.0
"""How long one process carries before another one may, or may throw the index away."""
_ATTEMPTS = 2
"""How often one process rebuilds the index before it gives up and says so."""

_log = logging.getLogger("evolve.index")


def large(vectors: int, dim: int) -> bool:
    """Return whether an index should be asked for the neighbours among so many vectors."""
    return vectors * dim > EXACT_NUMBERS


def overwrite_freed_memory() -> None:
    """Have the C library overwrite each block of memory that is freed or given out, from now on, in this process.

    Chroma's graph is written to disk with places that nobody has filled yet. They hold what stood in memory before: in
    one of thirty tries a vector of the index that was thrown away. glibc alone can do so (M_PERTURB).
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(PERTURB, FILLED)


class IndexWorker(Thread):
    """Keeps one index equal to what the journal says. Start it once, `stop` it once."""

    def __init__(self, opened: Callable[[], Journal], place: Place, *, dim: int) -> None:
        """Work on what is kept in `place`, which `stop` releases.

        `opened` gives a connection of its own: one shared with the store would make both wait for each other's lock.
        """
        super().__init__(name="evolve-index", daemon=True)
        self.ready = Event()
        """Set while the index is open, and healed by whoever may write to it."""
        self.hurry = Event()
        """Set while somebody waits for the index; otherwise other threads get every second time slice."""
        self.failure = ""
        self.healed = ""
        self.kind = place.kind
        self._opened, self._place, self._dim = opened, place, dim
        self._index: ListableIndex | None = None
        self._unlike = False
        """Whether the index has to be compared with the journal id by id, once it may be written to."""
        self._compared = False
        self._failed_at = 0.0
        self._kept_back: EvolveError | OSError | None = None
        """Why what the index holds was not deleted."""
        self._counts: dict[str, int] = {}
        self._use = Lock()
        self._woken, self._wanted, self._stopping, self._dropping = Event(), Event(), Event(), Event()
        self._rebuilds = 0

    def wake(self) -> None:
        """Say that outbox rows were written."""
        self._woken.set()

    def want(self) -> None:
        """Ask for the index to be opened even though nothing waits."""
        if not self._wanted.is_set():
            self._wanted.set()
            self._woken.set()

    def serves(self, collection: str) -> bool:
        """Return whether a search of that collection should ask the index."""
        return self.ready.is_set() and large(self._counts.get(collection, 0), self._dim)

    def serves_any(self) -> bool:
        """Return whether there is a collection of which a search should ask the index."""
        return any(self.serves(collection) for collection in tuple(self._counts))

    def search(self, collection: str, vector: Vector, k: int) -> list[tuple[str, float]] | None:
        """Return the index's neighbours, None when it is not open or failed just now (which `failure` then tells)."""
        with self._use:
            if self._index is None or not self.ready.is_set():
                return None
            try:
                found = self._index.search(collection, vector, k)
            except (IndexCorrupt, IndexUnavailable, EmbedderMismatch) as error:
                self._fail(str(error))
                return None
            if len(found) < min(k, self._counts.get(collection, 0)):  # somebody has emptied it
                self._compared = False
                self.want()
                return None
            return found

    def drop(self) -> None:
        """Close the index, queue every vector anew, and delete what the index holds; wait until that is done.

        Raises `IndexUnavailable` where it was not deleted.
        """
        self._kept_back = None
        self._dropping.set()
        self._woken.set()
        while self._dropping.is_set() and self.is_alive():
            time.sleep(0.005)
        if self._kept_back is not None:
            raise IndexUnavailable(f"{VECTORS_STAY}: {self._kept_back}")

    def stop(self) -> None:
        """Finish the step at hand, close the index, release its place."""
        self._stopping.set()
        self._woken.set()
        self.join()

    def run(self) -> None:
        """Work until stopped."""
        journal: Journal | None = None
        try:
            while not self._stopping.is_set():
                self._woken.wait(POLL_SECONDS)
                self._woken.clear()
                journal = self._round(journal)
        finally:
            if not self._stopping.is_set():
                self.failure = self.failure or "the index thread ended by an unexpected error; see the log"
            self.ready.clear()
            opened = self._index is not None
            self._release()
            if journal is not None:
                journal.close()
            self._place.release(clean=opened)

    def _round(self, journal: Journal | None) -> Journal | None:
        """Work once; return the connection, which is opened where there is none yet, None where that failed."""
        try:
            if journal is None:
                if self._rests() and not self._dropping.is_set():
                    return None
                journal = self._connect()
            self._work(journal)
        except (EvolveError, OSError) as error:
            self._fail(str(error))
        return journal

    def _connect(self) -> Journal:
        """Open the journal. Where that fails, nothing can be deleted either, and who waits for it is told."""
        try:
            return self._opened()
        except (EvolveError, OSError) as error:
            if self._dropping.is_set():
                self._kept_back = error
                self._dropping.clear()
            raise

    def _work(self, journal: Journal) -> None:
        """Carry what waits. What is wrong with the index is healed; what is wrong with the journal is raised."""
        try:
            if self._dropping.is_set() and not self._erase(journal):
                return
            waiting = outbox.waits(journal)
            if self._rests() or self._stopping.is_set() or not (waiting or self._wanted.is_set()):
                return
            index = self._index
            if index is None:
                if self._stopping.wait(SETTLE_SECONDS):
                    return
                index = self._open()
            elif not self.hurry.is_set():
                self._stopping.wait(GATHER_SECONDS)
            self._wanted.clear()
            self._check_embedder(journal)
            with self._place.writing(journal) as mine:
                if mine:
                    self._carry(journal, index)
                else:
                    self._look(index)
        except (IndexCorrupt, EmbedderMismatch) as error:
            self._start_over(journal, str(error))

    def _check_embedder(self, journal: Journal) -> None:
        """Raise `IndexUnavailable` where the journal's vectors are another embedder's: others rely on the index."""
        made_by = journal.query("SELECT model, dim FROM embeddings LIMIT 1")
        if made_by and made_by[0] != self._place.made_by:
            raise IndexUnavailable(
                f"the stored vectors are of embedder {made_by[0][0]!r} (dimension {made_by[0][1]}), and "
                f"{self._place.made_by[0]!r} (dimension {self._place.made_by[1]}) is configured here: set the old one "
                "again, or run `evolve memory reindex`"
            )

    def _erase(self, journal: Journal) -> bool:
        """Delete what the index holds, once it may be written to; return whether it was tried.

        What is queued first, others know to be missing.
        """
        self._release()
        with self._place.writing(journal) as mine:
            if not mine:
                return False
            self.failure = ""
            try:
                outbox.enqueue_all(journal)
                self._place.erase()
            except (EvolveError, OSError) as error:
                self._kept_back = error
                raise
            finally:
                self._dropping.clear()
        return True

    def _rests(self) -> bool:
        """Tell whether the index has failed, and is not to be tried again yet; where it is, forget the failure."""
        if not self.failure:
            return False
        again = self._place.again_seconds
        if again is None or time.monotonic() < self._failed_at + again:
            return True
        self._release()
        self.failure = ""
        return False

    def _open(self) -> ListableIndex:
        index, self._unlike = self._place.open()
        self._compared = False
        with self._use:
            self._index = index
        return index

    def _look(self, index: ListableIndex, *, build: bool = False) -> None:
        """Count what the index holds, and let searches ask it: another process may carry changes to it as well.

        With `build` large collections get first what searches of them need.
        """
        counts = {name: index.count(name) for name in index.collections()}
        for name in counts if build else ():
            if large(counts[name], self._dim):
                index.build(name, lambda: self._stopping.is_set() or self._dropping.is_set())
        self._counts = counts
        self.ready.set()

    def _carry(self, journal: Journal, index: ListableIndex) -> None:
        """Carry what waits, but no longer than others may have to wait for it."""
        begun = time.monotonic()
        if not self._compared:
            outbox.reconcile(journal, index, thorough=self._unlike)
            self._compared = True
        while not self._stopping.is_set() and not self._dropping.is_set():
            started = time.monotonic()
            outbox.drain(journal, index, dim=self._dim)
            if outbox.waits(journal):
                if time.monotonic() > begun + LEASE_SECONDS:
                    self._woken.set()
                    return
                if not self.hurry.is_set():
                    self._stopping.wait(max(GATHER_SECONDS, time.monotonic() - started))
                continue
            self._look(index, build=True)
            return

    def _start_over(self, journal: Journal, reason: str) -> None:
        """Take what is there away and queue every vector for a new index."""
        self._release()
        self._rebuilds += 1
        with self._place.writing(journal) as mine:
            if not mine or self._rebuilds > _ATTEMPTS:
                self._fail(reason)
                return
            count = outbox.enqueue_all(journal)
            moved = self._place.start_over()
        self.healed = f"rebuilt from {count} stored vectors{moved}: {reason}"
        _log.warning("index rebuilt", extra={"vectors": count, "reason": reason})
        self.failure = ""
        self._woken.set()

    def _fail(self, reason: str) -> None:
        self.ready.clear()
        self.failure, self._failed_at = reason, time.monotonic()
        _log.warning("index failed, searching exactly", extra={"reason": reason})

    def _release(self) -> None:
        with self._use:
            self.ready.clear()
            if self._index is not None:
                self._index.close()
                self._index = None
