"""The one door to a workspace's knowledge: records, snapshots, recall, journal, episodes, upkeep.

Threads: a `Store` may be shared by async code in one thread and by worker threads; each method holds `store.lock` while it
touches the database, and embedding happens before that. Processes: each opens its own `Store`; writers wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from memory.changes import Batch
from memory.deltas import commit
from memory.journal import Journal
from memory.proposals import prepare
from memory.protocols import Embedder, KnowledgeView
from memory.records import Commit, DeltaOp, Record
from memory.view import Reader


def estimate_tokens(text: str) -> int:
    """Return a rough token count (four characters each) for stores opened without a tokenizer."""
    return (len(text) + 3) // 4


class Store:
    """An open workspace."""

    def __init__(
        self, journal: Journal, embedder: Embedder, count_tokens: Callable[[str], int] = estimate_tokens
    ) -> None:
        """Use `Store.open`."""
        self.journal = journal
        self.embedder = embedder
        self.count_tokens = count_tokens
        self.lock = journal.lock
        self.db = journal.conn
        self.reader = Reader(journal)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        embedder: Embedder,
        index: Literal["chroma", "exact"] = "chroma",
        read_only: bool = False,
        owner: bool = True,
        count_tokens: Callable[[str], int] = estimate_tokens,
    ) -> Store:
        """Open or create the workspace database at `path` (a file; the vector index lives beside it in `index/`).

        Raises `SchemaTooNew`, `NotFound` (missing, with `read_only`) and `JournalError` as `open_database`, and
        `EmbedderMismatch` or `IndexLocked` from the index.
        """
        return cls(Journal(path, read_only=read_only), embedder, count_tokens)

    def close(self) -> None:
        """Release the index and the database; closing twice is allowed."""
        self.journal.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- knowledge ---

    def commit(
        self,
        namespace: str,
        ops: Sequence[DeltaOp],
        *,
        expected_version: int | None = None,
        actor: str,
        run_id: str = "",
        data: dict[str, Any] | None = None,
    ) -> Commit:
        """Apply ops in one transaction; each is applied, or refused with a reason, on its own.

        `expected_version` is the namespace version the ops were written against; `data` is journalled with the commit.
        An `op_id` that was applied before is reported as applied with reason `duplicate` and changes nothing.
        Raises `ConflictError` and `JournalError` as `memory.deltas.commit`.
        """
        batch = Batch(namespace, prepare(ops, self.embedder), actor, expected_version, run_id, data)
        return commit(self.journal, batch, model=self.embedder.model, dim=self.embedder.dim)

    def view(self, namespace: str, snapshot_id: str | None = None) -> KnowledgeView:
        """Return a read-only view of the live state, or of a snapshot with its frozen usage."""
        return self.reader.view(namespace)

    def get(self, record_id: str) -> Record[Any] | None:
        """Return a record of any status; None when there is none or it was forgotten."""
        return self.reader.get(record_id)

    def version(self, namespace: str) -> int:
        """Return the namespace version: it grows by one with each commit that changes knowledge (TAG does not)."""
        return self.reader.head(namespace)[0]
