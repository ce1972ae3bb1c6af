"""The sqlite3 module that sqlite-utils uses (pysqlite3 where installed), so that its errors are the ones we catch."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
else:
    from sqlite_utils.utils import sqlite3

__all__ = ["sqlite3"]
