"""A workspace's database on a PostgreSQL server; see `memory.database_engine.Engine`.

The workspace is a schema of the database: the first of the search path, as `options=-csearch_path=NAME` of the address
sets it, or `evolve` where none is set. Writers wait for each other by an advisory lock, which is taken before an event
draws its number.
"""

from __future__ import annotations

import hashlib
import re
import select
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, LiteralString, cast

from memory.database_engine import Cursor
from memory.errors import BadInput, JournalError, NotFound, SchemaTooNew, not_unicode
from memory.postgres.postgres_schema import STEPS, statements
from memory.postgres.table_words import TableWords

try:
    import psycopg
    from psycopg.adapt import Loader
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as missing:
    raise BadInput(
        "`memory.database` names a PostgreSQL server, but psycopg is not installed; run `pip install "
        "'evolve-agents[postgres]'`"
    ) from missing

SCHEMA = "evolve"
_NO_PATH = '"$user", public'
"""The search path of whoever has set none."""
_ALIVE = {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}
"""After a minute without an answer the server ends the session of a machine that is gone, and frees what it held."""
_NOTICED = {"connect_timeout": "30", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
"""So soon we notice a server that is gone; what the address gives of them counts instead."""
BUSY_SECONDS = 30
"""How long a writer waits for another one before it gives up with `JournalError`."""
_IDLE_SECONDS = 300
"""The server ends a transaction that asks nothing for so long: its process hangs, and all writers wait for it."""
_RANDOM_PAGE = "1.1"
"""PostgreSQL's own value, 4, is that of a spinning disk: whole tables are read then to look up some hundred rows, and a
recall among 100,000 records takes three times as long (docs/LOG.md)."""
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


LONG = 32_768
"""Characters of a statement's parameters above which it is no part of a pipeline: what a socket does not take at once
of the last statement psycopg leaves unsent there (3.3.9), and waits for ever for its answer."""


class PostgresConnection:
    """Runs statements; connects anew where the connection was lost between two transactions.

    In a transaction that writes, statements are sent without waiting for each other (pipeline mode): an answer is
    waited for where rows are read, and at the end. What fails raises there. Of statements that were prepared in a
    pipeline that failed psycopg does not know whether the server has them; the ROLLBACK that follows makes it prepare
    all anew. A long statement is sent by itself (`LONG`).
    """

    def __init__(self, address: str, *, read_only: bool) -> None:
        self._address, self._read_only = address, read_only
        self.leases: set[int] = set()
        """Advisory locks of this session, taken again where it is made anew."""
        self.in_transaction = self._closed = False
        self._open = ExitStack()
        self._pipeline: psycopg.Pipeline | None = None
        self._raw = self._connected()
        try:
            _require_unicode(self._raw)
            path = self.execute("SHOW search_path").fetchone()[0]
            self.schema = schema_of(path)
            self._settle(self._raw)
        except BaseException:
            self._raw.close()
            raise

    def _connected(self) -> psycopg.Connection[Any]:
        given = conninfo_to_dict(self._address)
        address = make_conninfo(self._address, **{name: _NOTICED[name] for name in _NOTICED if name not in given})
        raw = psycopg.connect(address, autocommit=True, application_name="evolve")
        raw.adapters.register_loader("numeric", _Numeric)
        return raw

    def _settle(self, raw: psycopg.Connection[Any]) -> None:
        settings = {
            "search_path": self.schema,
            "random_page_cost": _RANDOM_PAGE,
            "lock_timeout": f"{BUSY_SECONDS}s",
            "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS}s",
            "default_transaction_isolation": "read committed",  # a writer sees what was there when it got the lock
            "default_transaction_read_only": "on" if self._read_only else "off",
            **_ALIVE,
        }
        raw.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS t (name, value)",
            (list(settings), list(settings.values())),
        )
        for key in self.leases:
            if raw.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchone() != (True,):
                raise psycopg.OperationalError("the connection was lost, and another process works on this run now")

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Run one statement. Raises `psycopg.OperationalError` once it was closed."""
        if self._closed:
            raise psycopg.OperationalError("this connection was closed")
        command = sql.partition(" ")[0]
        if self._raw.closed or (not self.in_transaction and self._hung_up()):
            self._abandon_pipeline()
            lost, self.in_transaction = self.in_transaction, False
            raw = self._connected()
            try:
                self._settle(raw)
            except BaseException:
                raw.close()
                raise
            self._raw = raw
            if lost and command != "ROLLBACK":
                raise psycopg.OperationalError("the connection was lost in a transaction")
        if sql == "BEGIN" and psycopg.Pipeline.is_supported():
            self._pipeline = self._open.enter_context(self._raw.pipeline())
        elif command == "COMMIT":
            self._end_pipeline()
        elif command == "ROLLBACK":
            self._abandon_pipeline()
        done = self._run(self._raw.cursor(), sql, parameters)
        if command in ("BEGIN", "COMMIT", "ROLLBACK"):
            self.in_transaction = command == "BEGIN"
        return _Answer(done, self._pipeline) if self._pipeline else done

    def _hung_up(self) -> bool:
        """Tell whether the server ended the session since the last answer: then there is something to read."""
        for _ in range(2):  # its last message and the end may come apart
            if self._raw.closed or not _readable(self._raw.fileno()):
                break
            with suppress(psycopg.OperationalError):
                self._raw.pgconn.consume_input()
        return self._raw.closed

    def _run(self, cursor: psycopg.Cursor[Any], sql: str, parameters: Sequence[Any]) -> psycopg.Cursor[Any]:
        """Run a statement, in the pipeline where there is one; return the cursor."""
        values = [_sent(value) for value in parameters]
        texts = (value for value in values if isinstance(value, (str, bytes)))
        alone = self._pipeline is not None and sum(map(len, texts)) > LONG
        if alone:
            self._end_pipeline()
        cursor.execute(translated(sql), values)
        if alone:
            self._pipeline = self._open.enter_context(self._raw.pipeline())
        return cursor

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Cursor:
        """Run one statement for each tuple of parameters."""
        cursor = self._raw.cursor()
        for row in parameters:
            self._run(cursor, sql, row)
        return cursor

    def _end_pipeline(self) -> None:
        self._pipeline = None
        self._open.close()

    def _abandon_pipeline(self) -> None:
        """End the pipeline of a transaction that is not kept, whatever failed in it."""
        with suppress(psycopg.Error):
            self._end_pipeline()

    def close(self) -> None:
        """Close the connection; from now on nothing is asked of it."""
        self._closed = True
        self._abandon_pipeline()
        self._raw.close()


def _readable(descriptor: int) -> bool:
    """Tell whether there is something to read; `select` would take no descriptor above 1,023."""
    asked = select.poll()
    asked.register(descriptor, select.POLLIN)
    return bool(asked.poll(0))


class _Answer:
    """The rows of a statement that was sent in a pipeline."""

    def __init__(self, cursor: psycopg.Cursor[Any], pipeline: psycopg.Pipeline) -> None:
        self._cursor, self._pipeline = cursor, pipeline

    def fetchone(self) -> Any:
        return self._arrived().fetchone()

    def fetchall(self) -> list[Any]:
        return self._arrived().fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._arrived())

    def _arrived(self) -> psycopg.Cursor[Any]:
        """Wait for the rows. The server is told that no more comes for now, so that it watches for one that hangs."""
        if self._cursor.pgresult is None:
            self._pipeline.sync()
        return self._cursor


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
        known = self._steps()
        if known is None and read_only:
            raise NotFound(f"no workspace in {self.name}; run `evolve init` and `evolve run` first")
        if known is None:
            self.conn.execute("BEGIN")
            self.conn.execute("SELECT pg_advisory_xact_lock(?)", (self._lock,))
            if self.conn.execute("SELECT to_regnamespace(?)", (self._schema,)).fetchone()[0] is None:
                self.conn.execute(f'CREATE SCHEMA "{self._schema}"')
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


def schema_of(path: str) -> str:
    """Return the schema of the workspace: the first of a search path, as the address sets it. Raises `BadInput`."""
    schema = SCHEMA if path == _NO_PATH else path.partition(",")[0].strip().strip('"')
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise BadInput(f"got schema {schema!r} in `memory.database`; expected small letters, digits and `_`")
    return schema


def _require_unicode(raw: psycopg.Connection[Any]) -> None:
    """Raise `BadInput` for a database that cannot hold every text."""
    encoding = raw.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise BadInput(
            f"database {raw.info.dbname!r} has the encoding {encoding}, which cannot hold every text; make another one "
            f"(`createdb -T template0 -E UTF8 NAME`) and name it in `memory.database`"
        )


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


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, without its full stop."""
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
