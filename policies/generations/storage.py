"""Writes adapters where they are served from: whole or not at all, each under a number of its own, never again.

A server reads an adapter's files long after it was told of them. So a directory appears under its name by one rename,
with its contents on disk, and is then left as it is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from memory.errors import JournalError
from policies.generations.adapters import BASE
from policies.generations.base_model import Base

FOLDER = "adapters"
BUSY_S = 60.0


def version_name(number: int) -> str:
    """Return the name of a generation, which is also its name on a server."""
    return f"policy-v{number}"


@contextmanager
def numbering(root: Path, taken: int) -> Generator[int]:
    """Give the next free number while no other process takes one. `taken`: highest number the registry knows."""
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=BUSY_S):
            written = [path.name.removeprefix("policy-v") for path in folder.glob("policy-v*")]
            yield max([taken, *(int(number) for number in written if number.isdigit())]) + 1
    except Timeout as error:
        raise JournalError(f"{folder}: another process is writing an adapter; wait for it and try again") from error


def write_adapter(root: Path, number: int, source: Path, base: Base) -> Path:
    """Copy an adapter to its place, with the base it belongs to, and return where it is.

    What a killed process left of an earlier try is removed. Links are followed, so that nothing outside can change it.
    """
    final = root / FOLDER / version_name(number)
    unfinished = final.with_name(f".{final.name}.tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    for file in (path for path in source.rglob("*") if path.is_file()):
        place = unfinished / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    (unfinished / BASE).write_text(base.model_dump_json(indent=2), encoding="utf-8")
    for path in (*unfinished.rglob("*"), unfinished):
        _sync(path)
    unfinished.rename(final)
    _sync(final.parent)
    return final


def _sync(path: Path) -> None:
    """Bring a file, or a folder's list of names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
