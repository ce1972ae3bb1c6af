"""A workspace's database on a PostgreSQL server; see `memory.engine.Engine`.

The workspace is a schema of the database: `evolve`, or the one that `options=-csearch_path=NAME` of the address names.
Writers wait for each other by an advisory lock, which is taken before an event draws its number.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, LiteralString, cast

from memory.engine import Cursor
from memory.errors import BadInput, JournalError, NotFound, SchemaTooNew
from memory.postgres.postgres_schema import STEPS, statements
from memory.postgres.table_words import TableWords

try:
    import psycopg
    from psycopg.adapt import Loader
    from psycopg.conninfo import conninfo_to_dict
except ImportError as missing:
    raise BadInput(
        "`memory.database` names a PostgreSQL server, but psycopg is not installed; run `pip install "
        "'evolve-agents[postgres]'`"
    ) from missing

SCHEMA = "evolve"
BUSY_SECONDS = 30
"""How long a writer waits for another one before it gives up with `JournalError`."""
_IDLE_SECONDS = 300
"""The server ends a transaction that asks nothing for so long: its process hangs, and all writers wait for it."""
_FREED = ("content", "embeddings", "embedding_cache", "record_words", "record_lengths")
"""Tables that hold texts, or what was made of them."""


class _Numeric(Loader):
    """Reads sums of whole numbers as `int`."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text else int(text)


@lru_cache(maxsize=1024)
def translated(sql: str) -> LiteralString:
    """Return a statement with psycopg's parameters, and without what only SQLite's planner is told."""
    plain = sql.replace("CROSS JOIN", "JOIN").replace("+r.", "r.").replace("%", "%%").replace("?", "%s")
    return cast("LiteralString", plain)


class PostgresConnection:
    """Runs statements; connects anew where the connection was lost between two transactions."""

    def __init__(self, address: str, schema: str, *, read_only: bool) -> None:
        self._address, self._schema, self._read_only = address, schema, read_only
        self._raw = self._connected()

    def _connected(self) -> psycopg.Connection[Any]:
        raw = psycopg.connect(self._address, autocommit=True, application_name="evolve")
        raw.adapters.register_loader("numeric", _Numeric)
        raw.execute(
            "SELECT set_config('search_path', %s, false), set_config('lock_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false),"
            " set_config('default_transaction_read_only', %s, false)",
            (self._schema, f"{BUSY_SECONDS}s", f"{_IDLE_SECONDS}s", "on" if self._read_only else "off"),
        )
        return raw

    @property
    def in_transaction(self) -> bool:
        """True inside a transaction, also one that failed."""
        return not self._raw.closed and self._raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Run one statement."""
        if self._raw.closed:
            self._raw = self._connected()
        return self._raw.execute(translated(sql), [_sent(value) for value in parameters])

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Cursor:
        """Run one statement for each tuple of parameters."""
        cursor = self._raw.cursor()
        cursor.executemany(translated(sql), [[_sent(value) for value in row] for row in parameters])
        return cursor

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()


def _sent(value: Any) -> Any:
    """Return a parameter as SQLite would take it: booleans are numbers, members of enumerations are texts."""
    if isinstance(value, bool):
        return int(value)
    return str(value) if isinstance(value, str) else value


class PostgresEngine:
    """One connection to the server."""

    def __init__(self, address: str, *, read_only: bool) -> None:
        """Connect, and make the workspace's schema where it is missing.

        Raises `BadInput` for an address that is none, `NotFound` for a missing workspace with `read_only`,
        `SchemaTooNew`, `JournalError` for a server that does not answer.
        """
        self._schema, self.name = _named(address)
        self._address, self._lock = address, self._key("")
        with self.errors():
            self.conn = PostgresConnection(address, self._schema, read_only=read_only)
            try:
                self._prepare(read_only)
                self._seen = self._position()
            except BaseException:
                self.conn.close()
                raise
        self.words = TableWords(self.conn)

    def _prepare(self, read_only: bool) -> None:
        known = self._steps()
        if known is None and read_only:
            raise NotFound(f"no workspace in {self.name}; run `evolve init` and `evolve run` first")
        if known is None:
            self.conn.execute("BEGIN")
            self.conn.execute("SELECT pg_advisory_xact_lock(?)", (self._lock,))
            self.conn.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
            if self._steps() is None:
                for statement in statements():
                    self.conn.execute(statement)
            self.conn.execute("COMMIT")
        self._refuse_newer(self._steps() or [])

    def _steps(self) -> list[str] | None:
        """Return the changes to the schema that were made; None where there is no workspace."""
        (there,) = self.conn.execute("SELECT to_regclass(?)", (f'"{self._schema}".steps',)).fetchone()
        return None if there is None else [row[0] for row in self.conn.execute("SELECT name FROM steps")]

    def _refuse_newer(self, steps: Iterable[str]) -> None:
        unknown = sorted(set(steps) - set(STEPS))
        if unknown:
            raise SchemaTooNew(
                f"{self.name}: written by a newer evolve (schema steps {', '.join(unknown)} are unknown here). Nothing "
                "was changed. Upgrade with `pip install -U evolve-agents`"
            )

    @property
    def in_transaction(self) -> bool:
        return self.conn.in_transaction

    @contextmanager
    def errors(self) -> Generator[None]:
        try:
            yield
        except UnicodeEncodeError as error:
            raise BadInput(
                f"got {error.object!r:.200}, expected an id of whole Unicode characters; name it anew"
            ) from error
        except psycopg.IntegrityError:
            raise
        except psycopg.DataError as error:
            raise BadInput(f"{self.name}: {_first_line(error)}; no text may hold the character NUL") from error
        except psycopg.Error as error:
            raise JournalError(f"{self.name}: {_first_line(error)}. {_advice(error)}") from error

    def begin(self) -> None:
        self.conn.execute("BEGIN")
        self.conn.execute("SELECT pg_advisory_xact_lock(?)", (self._lock,))
        self._refuse_newer(row[0] for row in self.conn.execute("SELECT name FROM steps"))

    def outside(self, written: int) -> int:
        """Return how many events others have written since this connection was opened."""
        return self._position() - self._seen - written

    def _position(self) -> int:
        return self.conn.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]

    def examine(self) -> list[str]:
        """Return nothing: the server looks after its own files."""
        return []

    def size(self) -> int:
        sizes = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c"
        return self.conn.execute(
            f"{sizes} JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'",
            (self._schema,),
        ).fetchone()[0]

    def copy_to(self, path: Path) -> bool:
        return False

    def scrub(self) -> None:
        """Rewrite the tables that held the texts. What the server's log of changes keeps is its administrator's."""
        self.conn.execute(f"VACUUM FULL {', '.join(_FREED)}")

    @contextmanager
    def lease(self, name: str) -> Generator[bool]:
        """Hold an advisory lock through a connection of its own, which ends with the process."""
        with self.errors():
            holder = PostgresConnection(self._address, self._schema, read_only=True)
        try:
            with self.errors():
                mine = holder.execute("SELECT pg_try_advisory_lock(?)", (self._key(name),)).fetchone()[0]
            yield mine
        finally:
            holder.close()

    def leased(self, name: str) -> bool:
        key = self._key(name)
        with self.errors():
            free = self.conn.execute("SELECT pg_try_advisory_lock(?)", (key,)).fetchone()[0]
            if free:
                self.conn.execute("SELECT pg_advisory_unlock(?)", (key,))
        return not free

    def _key(self, name: str) -> int:
        """Return the number of an advisory lock of this workspace; the lock of its writers has no name."""
        digest = hashlib.sha256(f"evolve:{self._schema}:{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def close(self) -> None:
        self.conn.close()


def _named(address: str) -> tuple[str, str]:
    """Return the workspace's schema, and the address as errors call it. Raises `BadInput`."""
    try:
        parts = conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        raise BadInput(
            f"got a `memory.database` that PostgreSQL does not understand ({_first_line(error)}); expected "
            "postgresql://user@host:5432/name"
        ) from error
    found = re.search(r"search_path=([^\s,]+)", str(parts.get("options") or ""))
    schema = found[1] if found else SCHEMA
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise BadInput(f"got schema {schema!r} in `memory.database`; expected small letters, digits and `_`")
    host, port = parts.get("host") or "localhost", parts.get("port") or 5432
    return schema, f"postgresql://{host}:{port}/{parts.get('dbname') or ''} (schema {schema})"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def _advice(error: psycopg.Error) -> str:
    hints = (
        (
            psycopg.errors.LockNotAvailable,
            "Another process has kept it busy for too long; nothing was written. Try again",
        ),
        (psycopg.errors.DiskFull, "The server's disk is full; this change was rolled back. Free some space, repeat it"),
        (psycopg.errors.ReadOnlySqlTransaction, "It may not be written: is the server a replica?"),
        (psycopg.errors.InsufficientPrivilege, "Ask its administrator for the right to make and use this schema"),
        (
            psycopg.OperationalError,
            "Is the server running, and are the address and the password (PGPASSWORD or ~/.pgpass) right? What was not "
            "committed was not kept; try again",
        ),
    )
    return next((hint for kind, hint in hints if isinstance(error, kind)), "Run `evolve memory doctor`") + "."
