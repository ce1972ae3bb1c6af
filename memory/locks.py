"""Locks in files: one process of this machine at a time. The kernel frees them when the process dies.

A Chroma directory has one owner: two writers damage it without any error, so the second is refused by name. Beside its
lock a note says who holds it, and a dirty flag stays behind when the owner did not stop cleanly.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from memory.errors import IndexLocked
from memory.records import now


@contextmanager
def held(file: Path) -> Generator[bool]:
    """Hold a lock; give False where another process holds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file, timeout=0.2)  # `is_held` may hold it for an instant
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def is_held(file: Path) -> bool:
    """Tell whether a living process holds a lock."""
    try:
        if file.exists():
            FileLock(file, blocking=False).acquire().lock.release()
        return False
    except (Timeout, OSError):
        return True


class Owner:
    """Ownership of one workspace's index directory; beside it stand `index.lock`, `index.owner` and `index.dirty`."""

    def __init__(self, index_dir: Path) -> None:
        self._dir = index_dir
        self._lock = FileLock(index_dir.with_suffix(".lock"), thread_local=False)
        self._note = index_dir.with_suffix(".owner")
        self._dirty = index_dir.with_suffix(".dirty")

    @property
    def held(self) -> bool:
        """True while this object holds the lock."""
        return self._lock.is_locked

    def acquire(self) -> None:
        """Become the owner at once, or raise `IndexLocked` naming the process that is."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise IndexLocked(
                f"the vector index {str(self._dir)!r} belongs to {self._holder()}; stop that process, or wait "
                'until it is done; several may write at the same time with `memory.index = "exact"`. Meanwhile the '
                "other commands work, searching without it"
            ) from error
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": now().isoformat(timespec="seconds")}
        self._note.write_text(json.dumps(about), encoding="utf-8")

    def release(self, *, clean: bool = True) -> None:
        """Give the index up. `clean=False` leaves the dirty flag, so that the next owner probes the index first."""
        if not self.held:
            return
        if clean:
            self._dirty.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self._lock.release()

    @property
    def dirty(self) -> bool:
        """True when an owner opened the index and never closed it (or has it open now)."""
        return self._dirty.exists()

    def mark_dirty(self) -> None:
        """Say that the index is open: call it before Chroma touches the directory."""
        self._dirty.touch()

    def _holder(self) -> str:
        try:
            about = json.loads(self._note.read_text(encoding="utf-8"))
            return f"process {about['pid']} on host {about['host']!r} (since {about['since']})"
        except (OSError, ValueError, KeyError):
            return "another process that has not said who it is yet"
