"""A connection to a PostgreSQL server that is made anew where it was lost, with SQLite's parameters.

The workspace is a schema of the database: the first of the search path, as `options=-csearch_path=NAME` of the address
sets it, or `evolve` where none is set.
"""

from __future__ import annotations

import logging
import re
import select
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from typing import Any, LiteralString, cast

from memory.database_engine import Cursor
from memory.errors import BadInput

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
_MINUTE_MS = "60000"
ALIVE = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": _MINUTE_MS,
}
"""After a minute without an answer the server ends the session of a machine that is gone, and frees what it held.

Keepalives are sent on a silent connection only; where sent data waits to be acknowledged, `tcp_user_timeout` counts.
"""
NOTICED = {
    "connect_timeout": "30",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": _MINUTE_MS,
}
"""So soon we notice a server that is gone; what the address gives of them counts instead."""
AGAIN_SECONDS = (1.0, 5.0, 15.0)
"""A lost connection is made anew at once, and where that fails, after each of these waits."""
PATIENCE_SECONDS = 25.0
"""No such try begins later than this, however long the earlier ones took."""
GHOST_SECONDS = 75.0
"""How long a lease is asked for again: for a minute the server may not know that our lost session is over (`ALIVE`)."""
GHOST_POLL_SECONDS = 0.5
BUSY_SECONDS = 30
"""How long a writer waits for another one before it gives up with `JournalError`."""
_IDLE_SECONDS = 300
"""The server ends a transaction that asks nothing for so long: its process hangs, and all writers wait for it."""
_RANDOM_PAGE = "1.1"
"""PostgreSQL's own value, 4, is that of a spinning disk: whole tables are read then to look up some hundred rows, and a
recall among 100,000 records takes three times as long (docs/LOG.md)."""

_log = logging.getLogger("evolve.postgres")


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

    Of what was sent when the connection was lost, only a SELECT outside a transaction is sent again, once: of all else
    nobody knows whether the server did it.
    """

    def __init__(self, address: str, *, read_only: bool) -> None:
        self._address, self._read_only = address, read_only
        self.leases: set[int] = set()
        """Advisory locks of this session, taken again where it is made anew."""
        self.in_transaction = self._closed = False
        self._lost_at: float | None = None
        """When the connection was found to be lost, by the monotonic clock; None while there is one."""
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
        raw = connected(self._address, "evolve")
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
            **ALIVE,
        }
        raw.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS t (name, value)",
            (list(settings), list(settings.values())),
        )

    def _connect_anew(self) -> None:
        """Connect again and take the leases again; wait for either, the first time that it fails.

        Until that has come true, later calls try once. Raises `psycopg.OperationalError`.
        """
        waits = AGAIN_SECONDS if self._lost_at is None else ()
        self._lost_at = self._lost_at or time.monotonic()
        raw = self._connected_within(waits, self._lost_at + PATIENCE_SECONDS)
        try:
            self._settle(raw)
            self._take_again(raw, self._lost_at + GHOST_SECONDS)
        except BaseException:
            raw.close()
            raise
        self._raw, self._lost_at = raw, None

    def _connected_within(self, waits: Sequence[float], deadline: float) -> psycopg.Connection[Any]:
        """Connect, at once or after one of the waits that ends before the deadline."""
        for seconds in waits:
            try:
                return self._connected()
            except psycopg.OperationalError as error:
                if time.monotonic() + seconds > deadline:
                    raise
                _log.warning("connecting to the server again", extra={"in_s": seconds, "reason": first_line(error)})
                time.sleep(seconds)
        return self._connected()

    def _take_again(self, raw: psycopg.Connection[Any], deadline: float) -> None:
        """Take the advisory locks that the lost session held, each as soon as the server lets go of it.

        Raises `psycopg.OperationalError` where one is held after the deadline: then another process has it.
        """
        told = False
        for key in tuple(self.leases):
            while raw.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchone() != (True,):
                if time.monotonic() > deadline:
                    raise psycopg.OperationalError("the connection was lost, and another process works on this run now")
                if not told:
                    _log.warning(
                        "the connection was lost; waiting until the server ends the old session, which holds a lease",
                        extra={"at_most_s": round(deadline - time.monotonic())},
                    )
                    told = True
                time.sleep(GHOST_POLL_SECONDS)

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Run one statement. Raises `psycopg.OperationalError` once it was closed."""
        if self._closed:
            raise psycopg.OperationalError("this connection was closed")
        command = sql.partition(" ")[0]
        if self._raw.closed or (not self.in_transaction and self._hung_up()):
            self._abandon_pipeline()
            if self.in_transaction:  # it ended with the connection; whatever comes next connects anew
                self.in_transaction = False
                if command == "ROLLBACK":
                    return psycopg.Cursor(self._raw)
                raise psycopg.OperationalError("the connection was lost in a transaction")
            self._connect_anew()
        if sql == "BEGIN" and psycopg.Pipeline.is_supported():
            self._pipeline = self._open.enter_context(self._raw.pipeline())
        elif command == "COMMIT":
            self._end_pipeline()
        elif command == "ROLLBACK":
            self._abandon_pipeline()
        try:
            done = self._run(self._raw.cursor(), sql, parameters)
        except psycopg.OperationalError:
            if command != "SELECT" or self.in_transaction or not self._hung_up():
                raise
            self._connect_anew()
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


def connected(address: str, name: str) -> psycopg.Connection[Any]:
    """Connect to the server; `name` is what its administrator sees. Raises `psycopg.OperationalError`."""
    given = conninfo_to_dict(address)
    soon = {setting: NOTICED[setting] for setting in NOTICED if setting not in given}
    return psycopg.connect(make_conninfo(address, **soon), autocommit=True, application_name=name)


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


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, without its full stop."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
