"""A workspace on a PostgreSQL server. What holds in both databases is tested where `BOTH_ENGINES` stands.

P1  events are numbered without a gap, however many write at once, and a reader never sees one
P2  what was not committed leaves nothing, a connection that was lost is made anew, a writer waits and then gives up
P3  a run is held by one process of all machines
P4  a newer schema, a missing workspace, a server or an address that is none: one sentence, nothing changed
P5  recall ranks as in SQLite, and moving there and back changes nothing
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Thread
from uuid import uuid4

import psycopg
import pytest
from psycopg import IntegrityError, sql

from benchmarks.postgres_server import restart
from memory.doctor import Finding, examine
from memory.embedders.hashing import HashingEmbedder
from memory.episodes import put_run
from memory.errors import BadInput, JournalError, NotFound, SchemaTooNew
from memory.journal import Journal
from memory.moving import fingerprint, move
from memory.postgres.postgres_connection import NOTICED, PostgresConnection, _Answer
from memory.records import DeltaOp, Event, Op, RecallQuery, Task, Trajectory
from memory.runlist import RunFilter, runs
from memory.scratch import scratch
from memory.store import Store
from tests.postgres import workspace_address

Add = Callable[..., DeltaOp]
WRITERS, COMMITS = 4, 12


@pytest.fixture
def database() -> str:
    return workspace_address()


@pytest.fixture
def journal(path: Path, database: str) -> Iterator[Journal]:
    with closing(Journal(path, database=database)) as opened:
        yield opened


@contextmanager
def another(path: Path, database: str) -> Iterator[Journal]:
    with closing(Journal(path, database=database)) as opened:
        yield opened


def test_p1_writers_at_once_leave_no_gap_and_a_reader_sees_none(
    store: Store, reopen: Callable[..., Store], add: Add
) -> None:
    def write(writer: int) -> None:
        with reopen() as mine:
            for turn in range(COMMITS):
                result = mine.commit("default", [add(f"fact {turn} of writer {writer}")], actor=f"w{writer}")
                assert result.results[0].applied, result

    gaps: list[tuple[int, int]] = []
    with ThreadPoolExecutor(WRITERS) as pool:
        running = [pool.submit(write, writer) for writer in range(WRITERS)]
        while not all(each.done() for each in running):
            ((events, last),) = store.journal.query("SELECT count(*), coalesce(max(seq), 0) FROM events")
            gaps += [(events, last)] if events != last else []
        for each in running:
            each.result()
    assert gaps == []
    assert [record.number for record in store.records("default")] == list(range(1, WRITERS * COMMITS + 1))
    assert store.version("default") == WRITERS * COMMITS
    assert store.doctor() == []


def undone(store: Store) -> None:
    with suppress(InterruptedError), store.journal.transaction():
        store.append(Event(type="note", data={"n": 2}))
        raise InterruptedError


def test_p1_a_transaction_that_was_undone_gives_its_numbers_back(store: Store) -> None:
    store.append(Event(type="note", data={"n": 1}))
    undone(store)
    assert store.append(Event(type="note", data={"n": 3})).seq == 2


def test_p1_the_journal_is_append_only(store: Store) -> None:
    store.append(Event(type="note"))
    for statement in ("DELETE FROM events", "UPDATE events SET type = 'x'", "TRUNCATE events"):
        with pytest.raises(Exception, match="append-only"):
            store.db.execute(statement)


def test_p2_what_others_write_changes_the_stamp_and_what_this_one_writes_does_not(
    store: Store, reopen: Callable[..., Store]
) -> None:
    before = store.journal.stamp()
    store.append(Event(type="note"))
    undone(store)
    assert store.journal.stamp() == before
    with reopen() as other:
        other.append(Event(type="note"))
    assert store.journal.stamp() != before


def end_session(journal: Journal, other: Journal) -> None:
    """Let the server end a session, and wait until it has."""
    (row,) = journal.query("SELECT pg_backend_pid()")
    assert other.query("SELECT pg_terminate_backend(?, 60000)", row) == [(True,)]


def test_p2_a_session_that_the_server_ended_while_idle_is_made_anew_without_a_word(
    store: Store, path: Path, database: str
) -> None:
    with another(path, database) as other:
        end_session(store.journal, other)
        assert store.events() == []
        end_session(store.journal, other)
        assert store.append(Event(type="note")).seq == 1
        end_session(store.journal, other)
        assert not store.journal.leased("run-1")


def test_p2_what_was_closed_stays_closed(path: Path, database: str) -> None:
    with another(path, database) as other:
        pass
    with pytest.raises(JournalError, match="closed"):
        other.query("SELECT 1")


def test_p2_a_connection_that_is_lost_while_it_reads_is_said_once(journal: Journal, path: Path, database: str) -> None:
    def read() -> None:
        with another(path, database) as other, journal.reading():
            end_session(journal, other)
            journal.query("SELECT 1")

    with pytest.raises(JournalError, match="try again"):
        read()
    assert journal.query("SELECT count(*) FROM events") == [(0,)]


def test_p2_the_server_of_new_workspaces_is_the_one_that_restarts(journal: Journal) -> None:
    (before,) = journal.query("SELECT pg_postmaster_start_time()")
    restart()
    with suppress(JournalError):
        journal.query("SELECT 1")
    assert journal.query("SELECT pg_postmaster_start_time()") != [before]


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ("", NOTICED),
        ("&connect_timeout=7&keepalives_idle=9", {**NOTICED, "connect_timeout": "7", "keepalives_idle": "9"}),
        ("&tcp_user_timeout=5000", {**NOTICED, "tcp_user_timeout": "5000"}),
    ],
)
def test_p2_a_server_that_is_gone_is_noticed_soon_or_when_the_address_says(
    database: str, given: str, counts: dict[str, str]
) -> None:
    with closing(PostgresConnection(database + given, read_only=False)) as made:
        assert made._raw.info.get_parameters().items() >= counts.items()


def test_p2_a_writer_waits_for_another_and_then_gives_up(
    journal: Journal, path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.postgres.postgres_connection.BUSY_SECONDS", 1)
    with another(path, database) as impatient, journal.transaction():
        with pytest.raises(JournalError, match="kept it busy"), impatient.transaction():
            raise AssertionError("two writers at once")
        assert not impatient.engine.in_transaction


def test_p2_the_server_ends_the_transaction_of_a_writer_that_hangs(
    journal: Journal, path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.postgres.postgres_connection._IDLE_SECONDS", 1)

    def hang(writer: Journal) -> None:
        with writer.transaction() as conn:
            time.sleep(2)
            conn.execute("SELECT 1").fetchone()

    with another(path, database) as hanging:
        with pytest.raises(JournalError):
            hang(hanging)
        with journal.transaction() as conn:  # its lock is free
            assert conn.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("fails", ["SELECT 1 / 0", "INSERT INTO namespaces VALUES (1)"])
def test_p2_after_a_statement_that_fails_the_next_transaction_is_whole(store: Store, fails: str) -> None:
    def write(number: int) -> None:
        with store.journal.transaction() as conn:
            store.append(Event(type="note", data={"n": number}))
            conn.execute(fails)

    for at in range(8):  # often enough that statements would be prepared
        with pytest.raises((JournalError, BadInput, IntegrityError)):
            write(at)
        assert not store.journal.engine.in_transaction
        store.append(Event(type="note", data={"n": at}))
    assert [event.data["n"] for event in store.events(type="note")] == list(range(8))


def test_p2_a_commit_waits_for_no_more_answers_the_more_it_adds(
    store: Store, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    arrived = _Answer._arrived
    monkeypatch.setattr(_Answer, "_arrived", lambda answer: waited.append(1) or arrived(answer))
    counts: list[int] = []
    for number in (1, 20):
        waited.clear()
        store.commit("default", [add(f"rule {number} {at}") for at in range(number)], actor="test")
        counts.append(len(waited))
    assert counts[0] == counts[1] > 0


def test_p2_a_statement_that_is_longer_than_what_a_socket_takes_is_sent_whole(journal: Journal) -> None:
    body, read = f'"{"x" * 20_000_000}"', list[int]()

    def write() -> None:
        with journal.transaction() as conn:
            for _ in range(3):
                key = journal.put_body(body)
                read.append(conn.execute("SELECT length(body) FROM content WHERE hash = ?", (key,)).fetchone()[0])
                conn.executemany("DELETE FROM content WHERE hash = ? AND body = ?", [(key, body)])

    writing = Thread(target=write, daemon=True)  # one that hangs must not keep the tests
    writing.start()
    writing.join(60)
    assert not writing.is_alive()
    assert read == [len(body)] * 3


def test_p2_a_connection_that_is_lost_in_a_transaction_ends_it(store: Store, path: Path, database: str) -> None:
    def write() -> None:
        with store.journal.transaction():
            store.append(Event(type="note", data={"n": 1}))
            (row,) = store.journal.query("SELECT pg_backend_pid()")
            with another(path, database) as other:
                other.query("SELECT pg_terminate_backend(?)", row)
            with suppress(JournalError):
                store.append(Event(type="note", data={"n": 2}))
                store.journal.query("SELECT 1")  # what was sent is answered now
            store.append(Event(type="note", data={"n": 3}))

    with pytest.raises(JournalError, match="lost in a transaction"):
        write()
    assert store.events() == []


def test_p2_a_statement_of_another_thread_is_in_no_transaction_of_this_one(store: Store) -> None:
    """A thread that looks who holds a run while another one writes takes no part in what that one writes."""
    with ThreadPoolExecutor(1) as pool:
        looking = [pool.submit(store.journal.leased, "run-1") for _ in range(200)]
        while not all(each.done() for each in looking):
            undone(store)
    assert store.events() == []


def test_p2_a_copy_is_of_one_moment_and_keeps_no_writer_waiting(
    store: Store, reopen: Callable[..., Store], add: Add
) -> None:
    store.commit("default", [add("one")], actor="t")
    with store.journal.reading():
        before = store.journal.position()
        with reopen() as other:
            other.commit("default", [add("two")], actor="t")
        assert store.journal.position() == before
    assert store.journal.position() > before


def test_p2_a_trial_is_made_on_a_copy_that_knows_what_recall_needs(store: Store, add: Add) -> None:
    fill(store, add)
    store.put_reply("k", {"text": "long " * 1000}, run_id="r", task_id="t1")
    with scratch(store) as copy:
        assert ranked(copy) == ranked(store)
        assert copy.view("default").records() == store.view("default").records()
        assert copy.get_reply("k") is None
        copy.commit("default", [add("tried")], actor="t")
    assert "tried" not in {record.payload.content for record in store.view("default").records()}


def test_p3_a_lease_is_kept_over_a_lost_connection_or_the_work_stops(
    journal: Journal, path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.postgres.postgres_connection.GHOST_SECONDS", 0)
    with another(path, database) as other, journal.engine.lease("run-1") as mine:
        assert mine
        (row,) = journal.query("SELECT pg_backend_pid()")
        other.query("SELECT pg_terminate_backend(?)", row)
        with suppress(JournalError):
            journal.query("SELECT 1")
        assert journal.query("SELECT 1") == [(1,)]
        assert other.leased("run-1"), "it was taken again"
        (row,) = journal.query("SELECT pg_backend_pid()")
        other.query("SELECT pg_terminate_backend(?)", row)
        with other.engine.lease("run-1") as theirs:
            assert theirs
            with suppress(JournalError):
                journal.query("SELECT 1")
            for _ in range(2):
                with pytest.raises(JournalError, match="another process works on this run now"):
                    journal.query("SELECT 1")


def test_p3_one_process_holds_a_run(journal: Journal, path: Path, database: str) -> None:
    with another(path, database) as other, journal.engine.lease("run-1") as mine:
        assert mine
        assert other.leased("run-1")
        assert journal.leased("run-1")
        assert not other.leased("run-2")
        with other.engine.lease("run-1") as theirs:
            assert not theirs
    assert not journal.leased("run-1")


def test_p4_a_newer_schema_is_refused_on_opening_and_on_writing(journal: Journal, path: Path, database: str) -> None:
    journal.conn.execute("INSERT INTO steps (name) VALUES ('m999_later')")
    with pytest.raises(SchemaTooNew, match=r"m999_later.*pip install -U"), journal.transaction():
        pass
    with pytest.raises(SchemaTooNew, match="Nothing was changed"):
        Journal(path, database=database)


def test_p4_only_a_workspace_that_is_there_can_be_read(path: Path, database: str) -> None:
    with pytest.raises(NotFound, match="no workspace in postgresql://"):
        Journal(path, database=database, read_only=True)
    Journal(path, database=database).close()
    with closing(Journal(path, database=database, read_only=True)) as reader:
        with pytest.raises(JournalError, match="read-only"), reader.transaction():
            pass
        with pytest.raises(JournalError, match="may not be written"), reader.engine.errors():
            reader.conn.execute("DELETE FROM outbox")


@pytest.mark.parametrize(
    ("address", "kind", "said"),
    [
        ("postgresql://evolve@localhost:1/none", JournalError, "Is the server running"),
        ("nonsense", BadInput, "expected postgresql://user@host:5432/name"),
    ],
)
def test_p4_what_is_no_address_of_a_server_is_one_sentence(
    path: Path, address: str, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        Journal(path, database=address)


def another_database(address: str, made_with: sql.Composable) -> str:
    """Return the address of an empty database of the same server, made with some options."""
    name = f"d{uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 {}").format(sql.Identifier(name), made_with))
    return address.replace("/postgres?", f"/{name}?")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_p4_a_database_that_cannot_hold_every_text_is_refused(path: Path, database: str, encoding: str) -> None:
    address = another_database(database, sql.SQL("ENCODING {}").format(encoding))
    for read_only in (False, True):
        with pytest.raises(BadInput, match=f"has the encoding {encoding}, which cannot hold every text"):
            Journal(path, database=address, read_only=read_only)


def test_p4_a_run_is_found_by_its_name_under_every_locale(path: Path, database: str) -> None:
    address = another_database(database, sql.SQL("LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"))
    with another(path, address) as journal:
        put_run(journal, "r", {"mode": "online", "tags": [], "name": "Ärger im Büro"})
        for part in ("Ärger", "ÄRGER IM", "büro"):
            assert [run.run_id for run in runs(journal, RunFilter(name=part))[0]] == ["r"], part


def test_p4_a_schema_that_would_have_to_be_quoted_is_refused(path: Path, database: str) -> None:
    with pytest.raises(BadInput, match="got schema 'Bad-Name'"):
        Journal(path, database=re.sub("t[0-9a-f]{32}$", "Bad-Name", database))


def test_p4_the_character_nul_is_replaced_in_a_text_and_refused_in_an_id(store: Store, add: Add) -> None:
    (result,) = store.commit("default", [add("zero \x00 inside")], actor="t").results
    record = store.get(str(result.record_id))
    assert record is not None
    assert record.payload.content == "zero \ufffd inside"
    with pytest.raises(BadInput, match="NUL"):
        store.add_trajectory(Trajectory(id="a\x00b", task=Task(id="t", instruction="i")))
    assert store.doctor() == []


def test_p4_a_vector_index_of_one_machine_is_refused(path: Path, database: str) -> None:
    with pytest.raises(BadInput, match=r'write `index = "exact"`'):
        Store.over(Journal(path, database=database), embedder=HashingEmbedder(), index="chroma")


def fill(store: Store, add: Add) -> None:
    texts = ["mail has pages", "pages of mail are counted from one", "Zürich is naïve", "files: share, then mail", "x"]
    ids = [str(r.record_id) for r in store.commit("default", [add(text, "t1") for text in texts], actor="t").results]
    edit = DeltaOp(op=Op.EDIT, kind="fact", target_id=ids[0], payload={"content": "mailing: pages begin at one"})
    store.commit("default", [edit], actor="t")
    store.add_trajectory(Trajectory(id="e1", run_id="r", task=Task(id="t1", instruction="count \x00 the mails")))
    store.put_run("r", {"mode": "online", "tags": ["a"]})
    store.snapshot("default")
    store.forget(ids[4], purge=True)


def test_p5_a_source_is_let_go_once_it_is_read_and_what_is_written_then_is_not_lost_in_silence(
    tmp_path: Path, reopen: Callable[..., Store], store: Store, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, add)

    def writing(target: Journal) -> list[Finding]:
        with reopen() as writer:
            writer.append(Event(type="note"))
        return examine(target)

    monkeypatch.setattr("memory.moving.examine", writing)
    with closing(Journal(tmp_path / "back.db")) as back:
        with pytest.raises(JournalError, match="1 events were written while it was moved, so nothing was kept"):
            move(store.journal, back)
        assert back.position() == 0


def ranked(store: Store) -> list[tuple[str, dict[str, float]]]:
    queries = ("mails by page", "naive zurich", "share a file", "pages")
    found = [item for text in queries for item in store.recall(RecallQuery(text=text, min_score=-1.0))]
    return [(item.record.payload.content, item.scores) for item in found]


def test_p5_there_and_back_is_the_same_workspace_and_recalls_alike(
    tmp_path: Path, path: Path, store: Store, add: Add
) -> None:
    files = [tmp_path / "first.db", tmp_path / "back.db"]
    with Store.open(files[0], embedder=HashingEmbedder(), index="exact") as first:
        fill(first, add)
        count, sha256 = move(first.journal, store.journal)
        expected = ranked(first)
        assert sha256 == fingerprint(first.journal)
    assert count == store.journal.position() > 0
    assert len(expected) > 8
    assert (ranked(store), fingerprint(store.journal)) == (expected, sha256)
    assert store.doctor() == []
    with Store.open(files[1], embedder=HashingEmbedder(), index="exact") as back:
        move(store.journal, back.journal)
        assert (ranked(back), fingerprint(back.journal)) == (expected, sha256)
        assert examine(back.journal) == []
        with pytest.raises(BadInput, match="holds a workspace of"):
            move(back.journal, store.journal)
    assert store.append(Event(type="note")).seq == count + 1
