"""The one door to sqlite-utils, and the sqlite3 module that it uses, so that its errors are the ones we catch.

sqlite-utils imports pandas where it is installed, to store its types: a quarter of a second at the start of every
command. We store none of them, so that for this import there is no pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING


@contextmanager
def _without(package: str) -> Generator[None]:
    """Let an import find no such package, unless it was imported before."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # Python's own sign for "there is none"
    try:
        yield
    finally:
        del sys.modules[package]


with _without("pandas"):
    from sqlite_utils import Database, Migrations

if TYPE_CHECKING:
    import sqlite3
else:
    from sqlite_utils.utils import sqlite3

__all__ = ["Database", "Migrations", "sqlite3"]
