"""A copy of a workspace to try changes on: what is done to it never reaches the journal it was taken from."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from memory.moving import copy_to
from memory.store import Store

_NAME = re.compile(r"scratch-(\d+)-.*")


def sweep(folder: Path) -> int:
    """Delete the copies that killed processes of this machine left in a workspace; return how many."""
    found = [(path, _NAME.fullmatch(path.name)) for path in folder.glob("scratch-*")]
    left = [path for path, name in found if name and not _alive(int(name[1]))]
    for path in left:
        rmtree(path, ignore_errors=True)
    return len(left)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def scratch(store: Store) -> Generator[Store]:
    """Give a store with the knowledge that `store` holds now, beside it on disk, and delete it afterwards.

    It searches exactly. The next record has the number that it would get in the original.
    """
    with TemporaryDirectory(dir=store.journal.path.parent, prefix=f"scratch-{os.getpid()}-") as folder:
        path = Path(folder) / "evolve.db"
        copy_to(store.journal, path, only_knowledge=True)
        with Store.open(path, embedder=store.embedder, index="exact", count_tokens=store.count_tokens) as copy:
            yield copy
