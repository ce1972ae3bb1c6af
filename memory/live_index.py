"""The live vector side of a workspace: an index where this process may ask one, exact search everywhere else.

A background thread opens the index when there is something to carry to it, and heals or rebuilds it from the journal.
Until that is done, for collections so small that a graph would return everything anyway, and in processes that have no
index (`memory.index_place`), search is exact over the same vectors. Either way a committed change is seen at once.
"""

from __future__ import annotations

import atexit
import json
import time
from dataclasses import dataclass

from memory import outbox
from memory.blobs import BlobSearch
from memory.index_place import Place
from memory.index_worker import IndexWorker, large, overwrite_freed_memory
from memory.indexes import EXACT
from memory.journal import Journal
from memory.protocols import Vector
from memory.records import RECALLABLE
from memory.vectors import collection_name, from_blobs, ranked

_OVERLAY = 200
"""Waiting outbox rows up to which recall reads them beside the index; with more it searches everything exactly."""


@dataclass(frozen=True)
class IndexState:
    """What serves searches; `evolve memory doctor` shows why it does not, and what was healed."""

    engine: str
    """What answers now: the index where a collection is large enough for it, else `exact`."""
    owner: bool
    """Whether this process has an index, its own folder or one on a server."""
    pending: int
    """Outbox rows that wait."""
    failure: str
    """Why the index is not used; empty when all is well."""
    healed: str
    """What was rebuilt since this process started, and why."""


class LiveIndex:
    """Nearest neighbours among recallable records as of the last commit. Safe to share between threads."""

    def __init__(self, journal: Journal, place: Place | None, *, dim: int) -> None:
        """Search `journal`'s vectors, with the index that is kept in `place`, and keep that up to date."""
        self._journal, self._dim = journal, dim
        self.blobs = BlobSearch(journal, dim=dim)
        self._worker: IndexWorker | None = None
        if place is not None:
            self._worker = IndexWorker(lambda: Journal(journal.path, database=journal.database), place, dim=dim)
            self._worker.start()
            atexit.register(self.close)

    def search(self, namespace: str, kind: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Return up to `k` (record id, cosine in [-1, 1]), best first; equal ones by id."""
        near = self._indexed(namespace, kind, vector, k)
        if near is not None:
            return near
        near = self.blobs.search(namespace, kind, vector, k)
        if self._worker is not None and large(self.blobs.count(namespace, kind), self._dim):
            self._worker.want()
        return near

    def _indexed(self, namespace: str, kind: str, vector: Vector, k: int) -> list[tuple[str, float]] | None:
        """Return neighbours from the index and what it still lacks; None when exact search has to answer."""
        collection = collection_name(namespace, kind)
        if self._worker is None or not self._worker.serves(collection):
            return None
        waiting = self._waiting()  # read before the search: a row leaves only when the index has it
        near = self._worker.search(collection, vector, k + len(waiting)) if len(waiting) <= _OVERLAY else None
        if near is None:
            return None
        found = {key: cosine for key, cosine in near if key not in waiting}
        found |= self._overlay(namespace, kind, vector, waiting)
        return ranked(found.items())[:k]

    def wake(self) -> None:
        """Say that a commit wrote outbox rows."""
        if self._worker is not None:
            self._worker.wake()

    def flush(self, timeout: float = 60.0) -> bool:
        """Wait until the index holds everything committed so far; return whether it does."""
        worker = self._worker
        if worker is None:
            return False
        worker.want()
        worker.hurry.set()
        deadline = time.monotonic() + timeout
        try:
            while time.monotonic() < deadline and worker.is_alive() and not worker.failure:
                if worker.ready.is_set() and not outbox.waits(self._journal):
                    return True
                time.sleep(0.01)
            return False
        finally:
            worker.hurry.clear()

    def rebuild(self) -> None:
        """Throw the index away and fill a new one from the journal.

        Also the second half of a re-index: call it after every vector was made anew. Raises `IndexUnavailable` where a
        server did not delete what it held.
        """
        self.blobs.clear()
        overwrite_freed_memory()  # also without an index: whoever makes one later in this process must not write it
        if self._worker is not None and self._worker.is_alive():
            self._worker.drop()
        else:
            outbox.enqueue_all(self._journal)
        self.wake()

    def state(self) -> IndexState:
        """Return what serves searches now and how far the index is behind."""
        worker = self._worker
        return IndexState(
            engine=worker.kind if worker is not None and worker.serves_any() else EXACT,
            owner=worker is not None and worker.is_alive(),
            pending=outbox.pending(self._journal),
            failure=worker.failure if worker else "",
            healed=worker.healed if worker else "",
        )

    def close(self) -> None:
        """Stop the background thread, release the index. What still waits goes on at the next open."""
        if self._worker is not None:
            atexit.unregister(self.close)
            self._worker.stop()
            self._worker = None

    def _waiting(self) -> set[str]:
        return {row[0] for row in self._journal.query("SELECT record_id FROM outbox LIMIT ?", (_OVERLAY + 1,))}

    def _overlay(self, namespace: str, kind: str, vector: Vector, waiting: set[str]) -> dict[str, float]:
        """Return id -> cosine of changes that are committed and not in the index yet."""
        if not waiting:
            return {}
        rows = self._journal.query(
            "SELECT r.id, r.status, e.vector FROM json_each(?) j CROSS JOIN records r ON r.id = j.value"
            " CROSS JOIN embeddings e ON e.record_id = r.id AND e.version = r.version"
            " WHERE r.namespace = ? AND r.kind = ? AND r.forgotten = 0",
            (json.dumps(sorted(waiting)), namespace, kind),
        )
        rows = [row for row in rows if row[1] in RECALLABLE]
        if not rows:
            return {}
        cosines = from_blobs([row[2] for row in rows], self._dim) @ vector
        return {row[0]: round(float(cosine), 6) for row, cosine in zip(rows, cosines, strict=True)}
