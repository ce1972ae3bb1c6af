"""A copy of a workspace to try changes on: what is done to it never reaches the journal it was taken from."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from memory.sql import sqlite3
from memory.store import Store


@contextmanager
def scratch(store: Store) -> Generator[Store]:
    """Give a store with everything that `store` holds now, beside it on disk, and delete it afterwards.

    It searches exactly. The next record has the number that it would get in the original.
    """
    with TemporaryDirectory(dir=store.journal.path.parent, prefix="scratch-") as folder:
        path = Path(folder) / "evolve.db"
        with store.lock, closing(sqlite3.connect(path)) as target:
            store.db.backup(target)
        with Store.open(path, embedder=store.embedder, index="exact", count_tokens=store.count_tokens) as copy:
            yield copy
