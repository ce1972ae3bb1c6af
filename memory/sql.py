"""The sqlite3 module that sqlite-utils uses, so that its errors are the ones we catch (it prefers pysqlite3 when installed)."""

from sqlite_utils.utils import sqlite3  # pyright: ignore[reportPrivateImportUsage]

__all__ = ["sqlite3"]
