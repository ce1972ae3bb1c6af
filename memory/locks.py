"""Locks in files: one process of this machine at a time. The kernel frees them when the process dies."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


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
