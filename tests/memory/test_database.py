"""Opening a workspace: migrations with a backup, no downgrade, and one clear sentence for every bad file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock
from sqlite_utils import Database, Migrations

import memory.sqlite.database
from memory.embedders.hashing import HashingEmbedder
from memory.errors import JournalError, NotFound, SchemaTooNew
from memory.records import DeltaOp
from memory.sqlite.database import clear_errors, open_database, use_wal
from memory.sqlite.schema import APPLICATION_ID, m001_base
from memory.sqlite.sql import sqlite3
from memory.store import Store

GOLDEN = Path(__file__).parents[1] / "golden"
Add = Callable[..., DeltaOp]


@pytest.fixture
def released(path: Path) -> Path:
    """A copy of the workspace that schema version 1 wrote."""
    shutil.copy(GOLDEN / "workspace_v1.db", path)
    return path


@pytest.fixture
def newer() -> Migrations:
    """The migrations of a version after this one."""
    migrations = Migrations("evolve")
    migrations(name="m001_base")(m001_base)

    @migrations()
    def m999_future(db: Database) -> None:
        db.execute("CREATE TABLE future (id INTEGER PRIMARY KEY)")

    return migrations


def reopen(path: Path, **options: bool) -> Store:
    return Store.open(path, embedder=HashingEmbedder(), index="exact", **options)


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*.backup"))


def test_a_released_workspace_opens_and_says_what_it_said(released: Path, add: Add) -> None:
    said = json.loads((GOLDEN / "workspace_v1.json").read_text(encoding="utf-8"))
    with reopen(released) as store:
        assert [[r.label, r.version, r.payload.content] for r in store.view("default").records()] == said["records"]
        assert store.snapshot("default").id == said["snapshot"]
        assert store.journal.position() == said["position"]
        assert store.doctor(rebuild=True)[0].level == "info"
        (result,) = store.commit("default", [add("still learning")], actor="t").results
        assert result.applied


def test_a_migration_leaves_a_backup_of_the_state_before(released: Path, newer: Migrations) -> None:
    with closing(open_database(released, migrations=newer)) as conn:
        assert conn.execute("SELECT count(*) FROM future").fetchone() == (0,)
    (backup,) = backups(released)
    with closing(open_database(backup)) as conn:
        assert conn.execute("SELECT name FROM sqlite_master WHERE name = 'future'").fetchone() is None
        assert conn.execute("SELECT count(*) FROM records").fetchone() == (4,)


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    """Without the lock about one in ten of such rounds told somebody that the database was locked."""

    def start(path: Path) -> None:
        use_wal(path)
        with closing(sqlite3.connect(path, timeout=30)) as conn:
            conn.executescript("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t (x);")

    with ThreadPoolExecutor(6) as pool:
        for at in range(60):
            list(pool.map(start, [tmp_path / f"{at}.db"] * 6))


def test_opening_again_migrates_nothing_and_makes_no_backup(released: Path) -> None:
    reopen(released).close()
    assert backups(released) == []


def test_a_migration_that_fails_leaves_the_database_as_it_was(released: Path, newer: Migrations) -> None:
    @newer()
    def m999_broken(db: Database) -> None:
        db.execute("CREATE TABLE half (id INTEGER)")
        db.execute("SELECT no_such_function()")

    with pytest.raises(JournalError, match="no_such_function"):
        open_database(released, migrations=newer)
    with closing(sqlite3.connect(released)) as conn:
        assert conn.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchone() is None


def test_a_workspace_of_a_newer_version_is_refused_and_left_alone(path: Path, newer: Migrations) -> None:
    open_database(path, migrations=newer).close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(SchemaTooNew, match=r"m999_future.*pip install -U"):
            reopen(path, read_only=read_only)
    assert path.read_bytes() == before


def test_read_only_reads_and_refuses_to_write(path: Path, add: Add) -> None:
    with reopen(path) as store:
        store.commit("default", [add("x")], actor="t")
        with reopen(path, read_only=True) as reader:
            assert [r.payload.content for r in reader.view("default").records()] == ["x"]
            with pytest.raises(JournalError, match="read-only"):
                reader.commit("default", [add("y")], actor="t")


def test_read_only_never_creates(path: Path) -> None:
    with pytest.raises(NotFound, match="evolve init"):
        reopen(path, read_only=True)
    assert not path.exists()


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_text("dear diary, " * 100, encoding="utf-8")
    with pytest.raises(JournalError, match="no evolve workspace"):
        reopen(path)
    assert path.read_text(encoding="utf-8").startswith("dear diary")


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE songs (title TEXT)")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="another program"):
        reopen(path)
    assert path.read_bytes() == before


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="folder does not exist"):
        reopen(tmp_path / "nowhere" / "evolve.db")


def test_a_damaged_file_is_reported(path: Path, add: Add) -> None:
    with reopen(path) as store:
        store.commit("default", [add(f"text {i} " + "x" * 500) for i in range(200)], actor="t")
    content = bytearray(path.read_bytes())
    content[8192:-8192] = b"\x00" * (len(content) - 16384)
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"malformed|not a database"), reopen(path) as store:
        store.view("default")


def test_a_full_disk_keeps_what_was_committed_and_nothing_of_the_rest(path: Path, add: Add) -> None:
    with reopen(path) as store:
        store.commit("default", [add("safe")], actor="t")
        pages = store.db.execute("PRAGMA page_count").fetchone()[0]
        store.db.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(JournalError, match=r"disk is full.*Free some space"):
            store.commit("default", [add(f"{i} " + "y" * 5000) for i in range(20)], actor="t")
        assert [r.payload.content for r in store.view("default").records()] == ["safe"]
        store.db.execute("PRAGMA max_page_count = 1000000")
        store.commit("default", [add("goes on")], actor="t")
        assert store.doctor() == []


def test_a_locked_database_is_reported_after_the_wait(path: Path, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    reopen(path).close()
    monkeypatch.setattr(memory.sqlite.database, "BUSY_SECONDS", 0.1)
    with reopen(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match=r"locked.*nothing was written"):
            store.commit("default", [add("x")], actor="t")
        other.execute("ROLLBACK")
        assert store.commit("default", [add("x")], actor="t").results[0].applied


def test_a_database_whose_making_was_interrupted_is_finished_at_the_next_open(path: Path) -> None:
    interrupted = Migrations("evolve")

    @interrupted(name="m001_base")
    def killed(db: Database) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_database(path, migrations=interrupted)
    with closing(open_database(path)) as conn:
        assert conn.execute("SELECT count(*) FROM events").fetchone() == (0,)


@pytest.mark.parametrize("left", ["index", "runs"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_lost_database_is_not_taken_for_a_new_workspace(path: Path, add: Add, left: str, empty: bool) -> None:
    with reopen(path) as store:
        store.commit("default", [add("worth keeping")], actor="t")
    (path.parent / left).mkdir()
    path.unlink()
    if empty:
        path.touch()
    for read_only in (False, True):
        with pytest.raises(JournalError, match=rf"there: {left}.*lost\. Put your newest backup.*evolve backup"):
            reopen(path, read_only=read_only)
    assert path.exists() is empty
    assert not empty or path.stat().st_size == 0


@pytest.mark.parametrize(("inside", "lost"), [([], True), (["a.lock"], False), (["a.lock", "chroma.sqlite3"], True)])
def test_a_folder_that_holds_nothing_but_locks_is_no_workspace(path: Path, inside: list[str], lost: bool) -> None:
    (path.parent / "index").mkdir()
    for name in inside:
        (path.parent / "index" / name).touch()
    if lost:
        with pytest.raises(JournalError, match="there: index"):
            reopen(path)
    else:
        reopen(path).close()


def test_an_empty_file_alone_is_a_workspace_that_begins(path: Path) -> None:
    path.touch()
    with reopen(path) as store:
        assert store.doctor() == []


def test_who_was_open_during_a_migration_writes_no_more(path: Path, add: Add, newer: Migrations) -> None:
    with reopen(path) as store:
        store.commit("default", [add("before")], actor="t")
        open_database(path, migrations=newer).close()
        with pytest.raises(SchemaTooNew, match="m999_future"):
            store.commit("default", [add("after")], actor="t")
        with closing(sqlite3.connect(path)) as conn:
            assert conn.execute("SELECT count(*) FROM records").fetchone() == (1,)


def test_a_change_of_the_schema_that_is_no_migration_disturbs_nobody(path: Path, add: Add) -> None:
    with reopen(path) as store, closing(sqlite3.connect(path)) as other:
        other.execute("VACUUM")
        assert store.commit("default", [add("goes on")], actor="t").results[0].applied


def test_a_file_that_may_not_be_written_is_answered_with_what_to_do(store: Store, add: Add) -> None:
    store.db.execute("PRAGMA query_only = ON")
    with pytest.raises(JournalError, match=r"readonly.*copy the whole folder") as told:
        store.commit("default", [add("x")], actor="t")
    assert "read_only=True" not in str(told.value)


def test_a_migration_waits_for_another_and_says_so_when_it_takes_too_long(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.sqlite.database, "BUSY_SECONDS", 0.1)
    with FileLock(f"{path}.migrate.lock"):
        with pytest.raises(JournalError, match="another process is migrating it"):
            reopen(path)
        with pytest.raises(JournalError, match="another process is preparing it"):
            use_wal(path)
    reopen(path).close()


def test_an_older_database_is_migrated_by_a_writer_and_never_by_a_reader(released: Path, newer: Migrations) -> None:
    with pytest.raises(JournalError, match="made by an older version"):
        open_database(released, read_only=True, migrations=newer)
    assert backups(released) == []
    open_database(released, migrations=newer).close()
    open_database(released, read_only=True, migrations=newer).close()


def test_a_broken_rule_of_the_schema_is_our_own_fault_and_stays_as_it_is() -> None:
    with closing(sqlite3.connect(":memory:")) as conn:
        conn.execute("CREATE TABLE one (x INTEGER PRIMARY KEY)")
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"), clear_errors("x.db"):
            conn.executemany("INSERT INTO one VALUES (?)", [(1,), (1,)])


@pytest.mark.parametrize(
    ("said", "damaged", "advice"),
    [
        ("file is not a database", "", "no evolve workspace"),
        ("file is not a database", "Throw it away", "Throw it away"),
        ("database disk image is malformed", "", "evolve memory salvage"),
        ("database disk image is malformed", "Throw it away", "Throw it away"),
        ("database is locked", "Throw it away", "nothing was written"),
        ("something else", "Throw it away", r"evolve memory doctor`\."),
    ],
)
def test_an_error_of_sqlite_comes_with_what_to_do(said: str, damaged: str, advice: str) -> None:
    with pytest.raises(JournalError, match=advice), clear_errors("x.db", damaged=damaged):
        raise sqlite3.DatabaseError(said)


def test_a_write_ahead_log_without_its_database_is_a_lost_workspace(path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    log.touch()
    reopen(path).close()
    path.unlink()
    log.write_bytes(b"what was written last")
    with pytest.raises(JournalError, match=r"is missing.*there: evolve.db-wal.*Move evolve.db-wal away first"):
        reopen(path)
    path.with_name(path.name + "-shm").touch()
    with pytest.raises(JournalError, match=r"Move evolve\.db-wal and evolve\.db-shm away first"):
        reopen(path)


def test_a_file_without_tables_may_become_a_workspace(path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA user_version = 1")
        conn.commit()
    assert path.stat().st_size
    reopen(path).close()
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert APPLICATION_ID.to_bytes(4, "big") == b"evlv"


def test_writes_reach_the_log_at_once_and_references_are_checked(path: Path) -> None:
    with closing(open_database(path)) as conn:
        found = {name: conn.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "foreign_keys")}
        assert (found, conn.execute("PRAGMA temp_store").fetchone()[0]) == ({"synchronous": 1, "foreign_keys": 1}, 2)
        assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)
