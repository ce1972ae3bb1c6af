"""A connection to PostgreSQL that is lost: how soon it is noticed, what is tried again, and what is not.

L1  both sides notice within a minute, also while sent data waits to be acknowledged
L2  outside a transaction a server that is away for a moment is waited for; a read is repeated, a write never
L3  a lease that the lost session still holds is waited for
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import Any

import psycopg
import pytest

from benchmarks.postgres_server import running
from memory.errors import JournalError
from memory.indexes.pgvector import PgvectorIndex
from memory.journal import Journal
from memory.postgres.postgres_connection import ALIVE, NOTICED
from tests.index_servers import served_index
from tests.postgres import workspace_address

SOCKET = ".s.PGSQL.5432"
Session = psycopg.Connection[Any]


@pytest.fixture
def database() -> str:
    return workspace_address()


@pytest.fixture
def journal(path: Path, database: str) -> Iterator[Journal]:
    with closing(Journal(path, database=database)) as opened:
        yield opened


@pytest.fixture
def witness(database: str) -> Iterator[Session]:
    """A session beside the journal's, which stays open while no new one can be made."""
    with psycopg.connect(database, autocommit=True) as session:
        yield session


@pytest.fixture
def door() -> Iterator[Path]:
    """The server's socket; moved to `closed(door)` it takes no new connection. It is back at the end."""
    found = running() / SOCKET
    yield found
    if closed(found).exists():
        closed(found).rename(found)


def closed(door: Path) -> Path:
    return door.with_name("closed")


def pid(journal: Journal) -> int:
    return journal.query("SELECT pg_backend_pid()")[0][0]


def end(witness: Session, session: int) -> None:
    assert witness.execute("SELECT pg_terminate_backend(%s, 60000)", (session,)).fetchone() == (True,)


def end_once_busy(witness: Session, session: int) -> None:
    asked = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
    while witness.execute(asked, (session,)).fetchone() is None:
        time.sleep(0.01)
    end(witness, session)


def set_here(rows: list[tuple[Any, ...]]) -> dict[str, str]:
    return {name: source for name, source in rows if source == "session"}


SOURCES = "SELECT name, source FROM pg_settings WHERE starts_with(name, 'tcp')"


def test_l1_the_server_is_told_when_to_give_up_a_session(journal: Journal) -> None:
    assert set_here(journal.query(SOURCES)).keys() == ALIVE.keys()  # of a socket like this one it shows no value


def test_l1_pgvectors_connection_notices_as_soon() -> None:
    index = served_index("pgvector", model="m", dim=2)
    assert isinstance(index, PgvectorIndex)
    index.connect()
    with closing(index):
        assert index._conn.info.get_parameters().items() >= NOTICED.items()
        assert set_here(index._rows(SOURCES)).keys() == ALIVE.keys()


def test_l2_a_server_that_is_away_for_a_moment_is_waited_for(journal: Journal, witness: Session, door: Path) -> None:
    end(witness, pid(journal))
    door.rename(closed(door))
    Timer(0.5, closed(door).rename, [door]).start()
    assert journal.query("SELECT 1") == [(1,)]


def test_l2_a_server_that_stays_away_is_waited_for_once(
    journal: Journal,
    witness: Session,
    door: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("memory.postgres.postgres_connection.AGAIN_SECONDS", (0.1, 0.1))
    end(witness, pid(journal))
    door.rename(closed(door))
    for _ in range(2):
        with pytest.raises(JournalError, match="Is the server running"):
            journal.query("SELECT 1")
        assert [record.message for record in caplog.records] == ["connecting to the server again"] * 2
    closed(door).rename(door)
    assert journal.query("SELECT 1") == [(1,)]


def test_l2_a_read_that_was_cut_off_is_repeated_and_a_write_is_not(journal: Journal, witness: Session) -> None:
    with ThreadPoolExecutor(1) as pool:
        cut = pool.submit(end_once_busy, witness, pid(journal))
        assert journal.query("SELECT 1 FROM pg_sleep(0.5)") == [(1,)]
        cut.result()
        cut = pool.submit(end_once_busy, witness, pid(journal))
        with pytest.raises(JournalError, match="try again"), journal.engine.errors():
            journal.conn.execute("DELETE FROM outbox WHERE EXISTS (SELECT 1 FROM pg_sleep(0.5))")
        cut.result()


def test_l2_a_transaction_that_was_cut_off_ends_without_a_wait_for_the_server(
    journal: Journal, witness: Session, door: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def write() -> None:
        with journal.transaction() as conn:
            end(witness, pid(journal))
            door.rename(closed(door))
            conn.execute("DELETE FROM outbox").fetchall()

    with pytest.raises(JournalError, match="try again"):
        write()
    assert caplog.records == []
    assert not journal.engine.in_transaction


def test_l3_a_lease_that_the_lost_session_still_holds_is_waited_for(
    journal: Journal, witness: Session, caplog: pytest.LogCaptureFixture
) -> None:
    with journal.engine.lease("run-1") as mine:
        assert mine
        held = (journal.engine._key("run-1"),)  # type: ignore[attr-defined]
        lost = pid(journal)
        end(witness, lost)
        witness.execute("SELECT pg_advisory_lock(%s)", held)  # as the lost session does until the server ends it
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(pid, journal)
            while not caplog.records and not asking.done():
                time.sleep(0.01)
            assert not asking.done()
            witness.execute("SELECT pg_advisory_unlock(%s)", held)
            assert asking.result() != lost
        (said,) = caplog.records
        assert "waiting until the server ends the old session" in said.message
        assert witness.execute("SELECT pg_try_advisory_lock(%s)", held).fetchone() == (False,)
