"""A workspace's database on a PostgreSQL server; see `memory.database_engine.Engine`.

Writers wait for each other by an advisory lock, which is taken before an event draws its number.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from memory.errors import BadInput, JournalError, NotFound, SchemaTooNew, not_unicode
from memory.postgres.postgres_connection import PostgresConnection, conninfo_to_dict, first_line, psycopg
from memory.postgres.postgres_schema import STEPS
from memory.postgres.table_words import TableWords

_FREED = ("content", "embeddings", "embedding_cache", "record_words", "record_lengths")
"""Tables that hold texts, or what was made of them."""


class PostgresEngine:
    """One connection to the server."""

    def __init__(self, address: str, *, read_only: bool) -> None:
        """Connect, and make the workspace's schema where it is missing.

        Raises `BadInput` for an address that is none, `NotFound` for a missing workspace with `read_only`,
        `SchemaTooNew`, `JournalError` for a server that does not answer.
        """
        self.name = _named(address)
        with self.errors():
            self.conn = PostgresConnection(address, read_only=read_only)
            self._schema = self.conn.schema
            self.name, self._lock = f"{self.name} (schema {self._schema})", self._key("")
            try:
                self._prepare(read_only)
                self._seen = self._position()
            except BaseException:
                self.conn.close()
                raise
        self.words = TableWords(self.conn)

    def _prepare(self, read_only: bool) -> None:
        """Make the schema, or bring it up to date; one that is newer, or only read, stays as it is."""
        known = self._steps()
        if known is None and read_only:
            raise NotFound(f"no workspace in {self.name}; run `evolve init` and `evolve run` first")
        self._refuse_newer(known or [])
        missing = [name for name in STEPS if name not in (known or [])]
        if missing and read_only:
            raise JournalError(
                f"{self.name}: made by an older version (schema steps {', '.join(missing)} are missing); open it once "
                "for writing, with `evolve memory reindex` say"
            )
        if missing:
            self._migrate()

    def _migrate(self) -> None:
        """Run the steps that are missing in one transaction, while no other process writes or migrates."""
        self.conn.execute("BEGIN")
        self.conn.execute("SELECT pg_advisory_xact_lock(?)", (self._lock,))
        if self.conn.execute("SELECT to_regnamespace(?)", (self._schema,)).fetchone()[0] is None:
            self.conn.execute(f'CREATE SCHEMA "{self._schema}"')
        known = self._steps() or []
        self._refuse_newer(known)
        for name in STEPS:
            if name not in known:
                for statement in STEPS[name]:
                    self.conn.execute(statement)
                self.conn.execute("INSERT INTO steps (name) VALUES (?)", (name,))
        self.conn.execute("COMMIT")

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
            raise not_unicode(error) from error
        except psycopg.IntegrityError:
            raise
        except psycopg.DataError as error:
            raise BadInput(f"{self.name}: {first_line(error)}; no text may hold the character NUL") from error
        except psycopg.Error as error:
            raise JournalError(f"{self.name}: {first_line(error)}. {_advice(error)}") from error

    def begin(self) -> None:
        self.conn.execute("BEGIN")
        self.conn.execute("SELECT pg_advisory_xact_lock(?)", (self._lock,))
        self._refuse_newer(row[0] for row in self.conn.execute("SELECT name FROM steps"))

    def begin_reading(self) -> None:
        self.conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

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
        try:
            self.conn.execute(f"VACUUM FULL {', '.join(_FREED)}")
        except psycopg.errors.LockNotAvailable as busy:
            raise JournalError(
                f"{self.name}: the text is gone from every table, but others keep the tables busy, so that old pages "
                "are still on the server's disk. Forget the same once more when they are done"
            ) from busy

    @contextmanager
    def lease(self, name: str) -> Generator[bool]:
        key = self._key(name)
        with self.errors():
            mine = key not in self.conn.leases and self._taken(key)
        if not mine:
            yield False
            return
        self.conn.leases.add(key)
        try:
            yield True
        finally:
            self.conn.leases.discard(key)
            with suppress(psycopg.Error):  # a session that is over holds nothing
                self.conn.execute("SELECT pg_advisory_unlock(?)", (key,))

    def _taken(self, key: int) -> bool:
        """Take an advisory lock of the session; somebody may just be looking whether it is held."""
        for _ in range(4):
            if self.conn.execute("SELECT pg_try_advisory_lock(?)", (key,)).fetchone()[0]:
                return True
            time.sleep(0.05)
        return False

    def leased(self, name: str) -> bool:
        key = self._key(name)
        if key in self.conn.leases:
            return True
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


def _named(address: str) -> str:
    """Return an address as errors call it. Raises `BadInput`."""
    try:
        parts = conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        raise BadInput(
            f"got a `memory.database` that PostgreSQL does not understand ({first_line(error)}); expected "
            "postgresql://user@host:5432/name"
        ) from error
    if service := parts.get("service"):
        return f"service={service}"
    return f"postgresql://{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"


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
