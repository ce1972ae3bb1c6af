"""An index on a server: every process searches it, one at a time carries changes to it, and nothing is ever stale."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import numpy as np
import psycopg
import pytest

from benchmarks.postgres_server import running
from evolve.archive.transfer import copy_settings
from evolve.config.file import load_config
from evolve.errors import ConfigError
from memory import index_worker
from memory.embedders.hashing import HashingEmbedder
from memory.errors import BadInput, IndexUnavailable
from memory.index_place import IndexServer, find_place
from memory.indexes.pgvector import PgvectorIndex
from memory.journal import Journal
from memory.protocols import Vector
from memory.records import DeltaOp, Op, RecallQuery
from memory.store import Store
from policies.server_process import free_port
from tests.index_servers import chroma_server, chroma_url, served_index
from tests.postgres import workspace_address

DIM = 64
Add = Callable[..., DeltaOp]
NAMED: dict[int, str] = {}
"""Store -> the index that it was opened with."""
TOPICS = ("invoice", "calendar", "mailbox", "payment", "contact", "folder", "todo")


@pytest.fixture(autouse=True)
def one_vector_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_worker, "EXACT_NUMBERS", 0)
    monkeypatch.setattr(IndexServer, "again_seconds", 0.1)


def opened(folder: Path, index: str, database: str = "") -> Store:
    journal = Journal(folder / "evolve.db", database=database)
    store = Store.over(journal, embedder=HashingEmbedder(DIM), index=index)
    NAMED[id(store)] = index
    return store


Pair = tuple[Store, Store, Store]


@pytest.fixture(params=["pgvector", "chroma-http"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Two processes that share an index, as far as they know, and one of the same workspace that searches exactly."""
    database = workspace_address(vector=True) if request.param == "pgvector" else ""
    index = request.param if database else f"chroma-http:{chroma_url()}/{tmp_path.name.replace('_', '-')[-36:].lower()}"
    found = [opened(tmp_path, named, database) for named in (index, index, "exact")]
    yield found[0], found[1], found[2]
    for store in found:
        store.close()


def learn(store: Store, count: int) -> None:
    said = [f"Rule {i}: {TOPICS[i % 7]} before {TOPICS[i // 7 % 7]} number {i * 7919 % 1000}" for i in range(count)]
    store.commit("default", [DeltaOp(op=Op.ADD, kind="fact", payload={"content": each}) for each in said], actor="test")


def answers(store: Store) -> list[list[str]]:
    return [[each.record.id for each in store.recall(RecallQuery(text=topic, k=5))] for topic in TOPICS]


def carried(*stores: Store) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and "exact" in {store.index.state().engine for store in stores}:
        for store in stores:
            store.index.flush(120)  # a search that met the other one's erasing is tried again soon
    assert "exact" not in {store.index.state().engine for store in stores}, [store.index.state() for store in stores]


def test_both_answer_from_the_server_as_exact_search_does(stores: Pair) -> None:
    one, other, exact = stores
    learn(one, 60)
    carried(one, other)
    assert answers(one) == answers(other) == answers(exact)
    assert one.index.state().failure == other.index.state().failure == ""


def test_a_change_of_one_is_seen_by_the_other_at_once(stores: Pair, add: Add) -> None:
    one, other, exact = stores
    learn(one, 20)
    carried(one, other)
    for i in range(5):
        one.commit("default", [add(f"Zebra {i} grazes at noon.")], actor="test")
        found = other.recall(RecallQuery(text=f"zebra {i} grazes", k=1))[0].record
        assert found.payload.key() == f"Zebra {i} grazes at noon."
        other.commit("default", [DeltaOp(op=Op.REMOVE, kind="fact", target_id=found.id)], actor="test")
        assert found.id not in [each.record.id for each in one.recall(RecallQuery(text=f"zebra {i} grazes", k=3))]
    carried(one, other)
    assert answers(one) == answers(other) == answers(exact)


def test_while_one_throws_the_index_away_the_other_answers_right(stores: Pair) -> None:
    one, other, exact = stores
    learn(one, 60)
    carried(one, other)
    right = answers(exact)
    one.index.rebuild()
    assert answers(other) == right
    carried(one, other)
    assert answers(one) == answers(other) == right


def test_a_server_that_is_not_there_is_told_and_asked_again_later(tmp_path: Path) -> None:
    name = f"w-{tmp_path.parent.name[-8:]}-{free_port()}"
    port = free_port()
    with opened(tmp_path, f"chroma-http:http://127.0.0.1:{port}/{name}") as store, opened(tmp_path, "exact") as exact:
        learn(store, 20)
        while not store.index.state().failure:
            time.sleep(0.02)
        assert "does not answer as asked" in store.index.state().failure
        assert "Is it running (`chroma run`)?" in store.index.state().failure
        assert answers(store) == answers(exact)
        with chroma_server(port):
            carried(store)
            assert store.index.state().failure == ""
            assert answers(store) == answers(exact)


def test_a_journal_that_is_away_when_the_index_begins_is_asked_again_later(tmp_path: Path) -> None:
    database = workspace_address(vector=True)
    journal = Journal(tmp_path / "evolve.db", database=database)
    door = running(True) / ".s.PGSQL.5432"
    closed = door.rename(door.with_name("closed"))
    try:
        store = Store.over(journal, embedder=HashingEmbedder(DIM), index="pgvector")
        NAMED[id(store)] = "pgvector"
        while not store.index.state().failure:
            time.sleep(0.02)
        assert "Is the server running" in store.index.state().failure
        with pytest.raises(IndexUnavailable, match=r"its vectors may still be in the index.*Is the server running"):
            store.index.rebuild()
    finally:
        closed.rename(door)
    with store:
        learn(store, 20)
        carried(store)
        assert len(held(store)) == 20


def test_a_purge_reaches_the_server_and_says_where_it_does_not(stores: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, exact = stores
    learn(one, 12)
    carried(one, other)
    first, second, *_ = (record.id for record in one.records("default"))
    one.forget(first, purge=True)
    assert first not in held(one)
    carried(one, other)
    assert (first in held(other), len(held(other))) == (False, 11)

    worker = one.index._worker
    assert worker is not None

    def down() -> None:
        raise IndexUnavailable("the wire is cut")

    monkeypatch.setattr(worker._place, "erase", down)
    with pytest.raises(IndexUnavailable, match=r"gone from the journal, and its vectors may still .*the wire is cut"):
        one.forget(second, purge=True)
    assert second not in [record.id for record in exact.records("default")]
    assert answers(other) == answers(exact)
    monkeypatch.undo()
    one.forget(second, purge=True)
    assert second not in held(one)


def held(store: Store) -> list[str]:
    """Return what the server holds, asked by a client of its own."""
    place = find_place(NAMED[id(store)], store.journal, model=store.embedder.model, dim=DIM, owner=False)
    assert isinstance(place, IndexServer)
    index, _ = place.open()
    found = [key for name in index.collections() for key in index.ids(name)]
    index.close()
    return found


def test_a_process_with_another_embedder_leaves_the_index_alone(tmp_path: Path) -> None:
    index = f"chroma-http:{chroma_url()}/w{free_port()}"
    with opened(tmp_path, index) as store:
        learn(store, 12)
        carried(store)
        with Store.over(Journal(tmp_path / "evolve.db"), embedder=HashingEmbedder(32), index=index) as stranger:
            assert not stranger.index.flush(30)
            assert "the stored vectors are of embedder" in stranger.index.state().failure
            assert len(held(store)) == 12


def test_what_was_emptied_by_somebody_else_is_noticed_and_filled_again(stores: Pair) -> None:
    one, other, exact = stores
    learn(one, 30)
    carried(one, other)
    place = find_place(NAMED[id(one)], one.journal, model=one.embedder.model, dim=DIM, owner=False)
    assert place is not None
    place.erase()
    assert answers(other) == answers(exact)
    deadline = time.monotonic() + 120
    while len(held(other)) < 30 and time.monotonic() < deadline:
        answers(other)
        time.sleep(0.05)
    assert len(held(other)) == 30
    assert answers(other) == answers(exact)


def test_more_than_the_candidates_of_a_search_are_found(tmp_path: Path) -> None:
    index = served_index("pgvector", model="m", dim=DIM)
    index.connect()
    vectors = np.random.default_rng(0).normal(size=(600, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index.upsert("c", [f"{n:03d}" for n in range(600)], vectors)
    index.build("c", lambda: False)
    assert len(index.search("c", vectors[0], 500)) == 500
    index.close()


def graphs(database: str) -> int:
    with psycopg.connect(database) as asked:
        found = asked.execute(
            "SELECT count(*) FROM pg_indexes WHERE schemaname = current_schema() AND indexdef LIKE '%hnsw%'"
        ).fetchone()
        assert found is not None
        return int(found[0])


@contextmanager
def when_an_index_is_made(database: str, done: str) -> Iterator[None]:
    """Have the server do something first whenever an index is made."""
    with psycopg.connect(database, autocommit=True) as asked:
        body = f"BEGIN {done}; END"
        asked.execute(f"CREATE FUNCTION before_index() RETURNS event_trigger LANGUAGE plpgsql AS $$ {body} $$")
        asked.execute(
            "CREATE EVENT TRIGGER before_index ON ddl_command_start WHEN TAG IN ('CREATE INDEX') "
            "EXECUTE FUNCTION before_index()"
        )
        try:
            yield
        finally:
            asked.execute("DROP EVENT TRIGGER before_index")


@pytest.fixture
def unbuilt() -> Iterator[tuple[PgvectorIndex, str, Vector]]:
    """A collection of 40 vectors on a server, without a graph."""
    database = workspace_address(vector=True)
    Journal(Path("unused"), database=database).close()
    index = PgvectorIndex("", database, model="m", dim=DIM)
    index.connect()
    vectors = np.random.default_rng(0).normal(size=(40, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index.upsert("c", [f"{n:03d}" for n in range(40)], vectors)
    yield index, database, vectors
    index.close()


def test_a_graph_is_built_once_its_collection_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_worker, "EXACT_NUMBERS", 10 * DIM)
    database = workspace_address(vector=True)
    with opened(tmp_path, "pgvector", database) as store, opened(tmp_path, "exact", database) as exact:
        learn(store, 5)
        assert store.index.flush(60)
        assert (graphs(database), store.index.state().engine) == (0, "exact")
        learn(store, 30)
        carried(store)
        assert graphs(database) == 1
        assert answers(store) == answers(exact)
        learn(store, 40)
        assert store.index.flush(60)
        assert graphs(database) == 1


def test_a_graph_that_nobody_wants_any_more_is_given_up(unbuilt: tuple[PgvectorIndex, str, Vector]) -> None:
    index, database, vectors = unbuilt
    late = Event()
    with when_an_index_is_made(database, "PERFORM pg_sleep(600)"), ThreadPoolExecutor(1) as other:
        building = other.submit(index.build, "c", late.is_set)
        assert index.search("c", vectors[7], 1) == [("007", 1.0)]
        late.set()
        building.result(60)
    assert graphs(database) == 0
    index.build("c", lambda: False)
    index.build("c", lambda: False)
    assert graphs(database) == 1


def test_a_graph_is_built_by_one_process_where_shared_memory_is_short(
    unbuilt: tuple[PgvectorIndex, str, Vector],
) -> None:
    index, database, _ = unbuilt
    short = "RAISE 'could not resize shared memory segment' USING ERRCODE = '53100'"
    several = "current_setting('max_parallel_maintenance_workers') <> '0'"
    with when_an_index_is_made(database, f"IF {several} THEN {short}; END IF"):
        index.build("c", lambda: False)
    assert graphs(database) == 1


def test_an_error_while_a_graph_is_built_is_told(unbuilt: tuple[PgvectorIndex, str, Vector]) -> None:
    index, database, _ = unbuilt
    with (
        when_an_index_is_made(database, "RAISE 'no room' USING ERRCODE = '53100'"),
        pytest.raises(IndexUnavailable, match="no room"),
    ):
        index.build("c", lambda: False)
    assert index.count("c") == 40


def test_an_answer_that_is_none_of_chromas_is_told(tmp_path: Path) -> None:
    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(502)
            self.end_headers()
            self.wfile.write(b"bad gateway")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        index = f"chroma-http:http://127.0.0.1:{proxy.server_port}/w"
        with opened(tmp_path, index) as store, opened(tmp_path, "exact") as exact:
            learn(store, 12)
            assert not store.index.flush(30)
            assert "502" in store.index.state().failure
            assert answers(store) == answers(exact)
        proxy.shutdown()


@pytest.mark.parametrize("index", ["pgvector", "qdrant:http://host/team", "chroma-http:http://host/team"])
def test_a_copy_of_a_workspace_does_not_use_the_index_of_the_original(tmp_path: Path, index: str) -> None:
    (tmp_path / "evolve.toml").write_text(f'[memory]\ndatabase = "service=x"\nindex = "{index}"\n')
    copy_settings(load_config(tmp_path / "evolve.toml"), tmp_path / "copy.toml")
    assert (tmp_path / "copy.toml").read_text() == '[memory]\nindex = "exact"\n'


def test_an_index_that_fails_while_it_is_asked_is_left_for_a_while(
    stores: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, exact = stores
    learn(one, 20)
    carried(one)
    worker = one.index._worker
    assert worker is not None

    def broken(*_: object) -> None:
        raise IndexUnavailable("the wire is cut")

    monkeypatch.setattr(worker._place, "again_seconds", 600)  # else a slow machine may have forgotten it already
    monkeypatch.setattr(worker._index, "search", broken)
    assert answers(one) == answers(exact)
    assert (one.index.state().engine, one.index.state().failure) == ("exact", "the wire is cut")


@pytest.mark.parametrize(
    ("index", "database", "said"),
    [
        ("pgvector", "", r"got index 'pgvector' and memory.database = ''; pgvector stands in the workspace's own"),
        ("pgvector:http://host/name", "", r"got index 'pgvector:http://host/name' .* nothing after 'pgvector'"),
        ("chroma-http", "", r"expected 'chroma-http:http://HOST:8000/NAME', where NAME"),
        ("qdrant:http://localhost:6333", "", r"expected 'qdrant:http://HOST:6333/NAME'"),
        ("qdrant:http://localhost:port/name", "", r"got index 'qdrant:http://localhost:port/name'; expected"),
        ("qdrant:localhost/name", "", r"expected 'qdrant:http"),
        ("qdrant:http://ann@host/name", "", r"holds a user or a password"),
        ("qdrant:http://host/Two Words", "", r"small letters, digits"),
    ],
)
def test_an_address_that_is_none_is_refused_before_anything_is_asked(
    tmp_path: Path, index: str, database: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        opened(tmp_path, index, database)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("faiss", "there is no index 'faiss'; there are chroma, chroma-http, exact, pgvector, qdrant"),
        ("qdrant:http://ann:secret@host/name", "it holds a password, and settings are kept with every run"),
        ("chroma:http://host/name", "index 'chroma' takes no address; write 'chroma'"),
        ("exact:http://host/name", "index 'exact' takes no address"),
        ("pgvector:http://host/name", "index 'pgvector' takes no address"),
        ("qdrant", "got index 'qdrant:'; expected 'qdrant:http://HOST:6333/NAME'"),
        ("chroma-http:nonsense", "expected 'chroma-http:http://HOST:8000/NAME'"),
    ],
)
def test_settings_name_an_index_that_there_is_and_no_password(tmp_path: Path, index: str, said: str) -> None:
    (tmp_path / "evolve.toml").write_text(f'[memory]\nindex = "{index}"\n')
    with pytest.raises(ConfigError, match=said):
        load_config(tmp_path / "evolve.toml")
