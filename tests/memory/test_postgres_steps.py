"""Changes to the schema of a workspace on a server.

M1  a step that is missing is made once, by the first that opens the workspace for writing, and keeps what is there
M2  a step that fails leaves nothing
M3  a reader of an older schema, and an older version before a newer one, are told what to do
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.errors import JournalError, SchemaTooNew
from memory.journal import Journal
from memory.postgres.postgres_schema import STEPS
from memory.records import Event
from memory.store import Store
from tests.postgres import workspace_address

LATER = "m002_later"
MORE = ("ALTER TABLE outbox ADD COLUMN later TEXT", "CREATE TABLE later (n BIGINT PRIMARY KEY)")
COLUMN = "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('outbox') AND attname = 'later'"


@pytest.fixture
def database(path: Path) -> str:
    """A workspace that this version made, and wrote to."""
    address = workspace_address()
    with Store.over(Journal(path, database=address), embedder=HashingEmbedder(), index="exact") as store:
        store.append(Event(type="note"))
    return address


def steps(journal: Journal) -> list[str]:
    return [name for (name,) in journal.query("SELECT name FROM steps ORDER BY applied_at, name")]


def test_m1_a_missing_step_is_made_once_and_keeps_what_is_there(
    path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEPS, LATER, MORE)
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: Journal(path, database=database), range(4)))
    for journal in opened:
        assert steps(journal) == list(STEPS)
        assert journal.query(COLUMN) == [(1,)]
        assert journal.position() == 1
        journal.close()


def test_m1_a_new_workspace_has_every_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, LATER, MORE)
    with closing(Journal(path, database=workspace_address())) as journal:
        assert steps(journal) == list(STEPS)
        assert journal.query(COLUMN) == [(1,)]


def test_m2_a_step_that_fails_leaves_nothing(path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setitem(STEPS, LATER, (*MORE, "CREATE TABLE events (n BIGINT)"))
        with pytest.raises(JournalError, match='"events" already exists'):
            Journal(path, database=database)
    with closing(Journal(path, database=database)) as journal:
        assert steps(journal) == list(STEPS)
        assert journal.query(COLUMN) == [(0,)]


def test_m3_a_reader_of_an_older_schema_is_told_what_to_do(
    path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEPS, LATER, MORE)
    with pytest.raises(JournalError, match=r"older version \(schema steps m002_later are missing\); open it once for"):
        Journal(path, database=database, read_only=True)
    Journal(path, database=database).close()
    with closing(Journal(path, database=database, read_only=True)) as reader:
        assert reader.position() == 1


def test_m3_an_older_version_leaves_a_newer_schema_alone(
    path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Journal(path, database=database)) as older:
        with monkeypatch.context() as newer:
            newer.setitem(STEPS, LATER, MORE)
            Journal(path, database=database).close()
        with pytest.raises(SchemaTooNew, match="m002_later"), older.transaction():
            pass
        monkeypatch.setitem(STEPS, "m002_other", ("CREATE TABLE other (n BIGINT)",))
        for read_only in (False, True):
            with pytest.raises(SchemaTooNew, match=r"m002_later.*Nothing was changed"):
                Journal(path, database=database, read_only=read_only)
        assert older.query("SELECT to_regclass('other')") == [(None,)]
