"""Chroma behind SQLite: never a stale answer, the same answers as exact search, healed from whatever happened to it."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memory import doctor as compared
from memory import index_worker, outbox
from memory.doctor import agreement
from memory.embedders.hashing import HashingEmbedder
from memory.health import probe
from memory.index_place import IndexFolder
from memory.index_worker import IndexWorker
from memory.indexes.chroma import ChromaIndex
from memory.journal import Journal
from memory.live_index import IndexState
from memory.locks import Owner
from memory.records import DeltaOp, Op, RecallQuery
from memory.store import Store

Add = Callable[..., DeltaOp]
DIM = 64
N = 260
ENOUGH = 200 * 32
"""Numbers in a collection's vectors from which on Chroma is asked here."""
TOPICS = ["invoice", "calendar", "mailbox", "payment", "contact", "folder", "todo", "token", "date", "page"]


def sentence(i: int) -> str:
    return (
        f"Rule {i}: {TOPICS[i % 10]} number {i * 7919 % 1000} before {TOPICS[i // 10 % 10]} and {TOPICS[i // 100 % 10]}"
    )


def open_store(path: Path, **options: object) -> Store:
    return Store.open(path, embedder=HashingEmbedder(DIM), **options)  # type: ignore[arg-type]


def worker_of(database: Path, owner: Owner, kind: type[IndexWorker] = IndexWorker) -> IndexWorker:
    """Return a worker on the folder beside a database; it is not started."""
    place = IndexFolder(database.parent / "index", owner, database, model=f"hashing-v1-{DIM}", dim=DIM)
    return kind(lambda: Journal(database), place, dim=DIM)


def answers(store: Store, count: int = 12) -> list[list[tuple[str, int]]]:
    queries = [RecallQuery(text=sentence(i * 13), k=10) for i in range(count)]
    return [[(found.record.id, found.tokens) for found in store.recall(query)] for query in queries]


@pytest.fixture(autouse=True)
def few_vectors_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (index_worker, compared):
        monkeypatch.setattr(module, "EXACT_NUMBERS", ENOUGH)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cleanly closed workspace whose index holds N records of one kind."""
    folder = tmp_path_factory.mktemp("workspace")
    ops = [DeltaOp(op=Op.ADD, kind="fact", payload={"content": sentence(i)}) for i in range(N)]
    with open_store(folder / "evolve.db") as store:
        store.commit("default", ops, actor="test")
        assert store.index.flush(120)
    return folder


@pytest.fixture
def database(workspace: Path, tmp_path: Path) -> Path:
    shutil.copytree(workspace, tmp_path / "copy")
    return tmp_path / "copy" / "evolve.db"


def test_chroma_answers_as_exact_search_does(database: Path) -> None:
    with open_store(database) as owner, open_store(database, owner=False) as reader:
        answers(owner, 1)  # asks for Chroma
        assert owner.index.flush(600)
        assert (owner.index.state().engine, reader.index.state().engine) == ("chroma", "exact")
        assert answers(owner) == answers(reader)


def test_a_commit_is_seen_at_once_and_carried_soon(database: Path, add: Add) -> None:
    with open_store(database) as store:
        store.index.flush(120)
        for i in range(5):
            store.commit("default", [add(f"Zebra {i} grazes at noon.")], actor="test")
            found = store.recall(RecallQuery(text=f"zebra {i} grazes", k=1))[0].record
            assert found.payload.content == f"Zebra {i} grazes at noon."
            (vector,) = HashingEmbedder(DIM).embed([found.payload.key()])
            assert store.index.search("default", "fact", vector, 1) == [(found.id, pytest.approx(1.0, abs=1e-5))]
            store.commit("default", [DeltaOp(op=Op.REMOVE, kind="fact", target_id=found.id)], actor="test")
            again = store.recall(RecallQuery(text=f"zebra {i} grazes", k=3))
            assert found.id not in [item.record.id for item in again]
            assert store.index.search("default", "fact", vector, 1)[0][0] != found.id
        assert store.index.flush(600)
        state = store.index.state()
        assert (state.pending, state.failure, state.healed) == (0, "", "")


def test_the_owner_carries_what_other_processes_wrote(database: Path, add: Add) -> None:
    with open_store(database) as owner, open_store(database, owner=False) as other:
        owner.index.flush(600)
        other.commit("default", [add("Giraffes need tall doors.")], actor="other")
        assert other.index.state().pending == 1
        deadline = time.monotonic() + 600
        while owner.index.state().pending and time.monotonic() < deadline:
            time.sleep(0.02)
        assert owner.index.state().pending == 0
        assert owner.recall(RecallQuery(text="giraffes doors", k=1))[0].record.payload.content.startswith("Giraffes")


def test_a_short_visit_never_loads_chroma(database: Path, add: Add, root: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from memory.store import Store\n"
        "from memory.embedders.hashing import HashingEmbedder\n"
        f"with Store.open(Path(sys.argv[1]), embedder=HashingEmbedder({DIM})) as store:\n"
        "    print(store.version('default'))\n"
        "print('chromadb' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(database)], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["1", "False"]


def test_what_a_closing_store_left_is_carried_at_the_next_open(database: Path, add: Add) -> None:
    with open_store(database, owner=False) as store:
        store.commit("default", [add("Otters sleep afloat.")], actor="test")
    with open_store(database) as store:
        assert store.index.flush(600)
        assert store.index.state().healed == ""


KILLED = """
import sys
from pathlib import Path
from memory.embedders.hashing import HashingEmbedder
from memory.records import DeltaOp, Op, Payload
from memory.kinds import register
from memory.store import Store

class Fact(Payload):
    kind = "fact"
    content: str
    topic: str = "tst"
    def text(self): return self.content

register(Fact)
store = Store.open(Path(sys.argv[1]), embedder=HashingEmbedder(64))
store.index.flush(600)
print("ready", flush=True)
for i in range(100000):
    store.commit("default", [DeltaOp(op=Op.ADD, kind="fact", payload={"content": f"late {i}"})], actor="x")
    if i == 20:
        print("on the way", flush=True)
"""


def test_a_killed_owner_loses_nothing(database: Path, root: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(database)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert process.stdout.readline() == "on the way\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (database.parent / "index.dirty").exists()
    with open_store(database) as owner, open_store(database, owner=False) as reader:
        assert owner.index.flush(600)
        assert answers(owner) == answers(reader)
        assert owner.index.state().failure == ""
    assert not (database.parent / "index.dirty").exists()


def garbage(index: Path) -> None:
    for path in (p for p in index.rglob("*.bin") if p.stat().st_size):
        path.write_bytes(os.urandom(path.stat().st_size))
    for path in index.rglob("*.pickle"):
        path.write_bytes(b"not a pickle")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "graph-overwritten": garbage,
    "database-overwritten": lambda index: (index / "chroma.sqlite3").write_bytes(os.urandom(9000)),
    "database-truncated": lambda index: os.truncate(index / "chroma.sqlite3", 8192),
    "directory-deleted": shutil.rmtree,
}


@pytest.mark.parametrize(
    ("damage", "clean"), [*((name, True) for name in sorted(DAMAGE)), ("graph-overwritten", False)]
)
def test_a_damaged_index_is_rebuilt_from_sqlite(database: Path, damage: str, clean: bool) -> None:
    index = database.parent / "index"
    DAMAGE[damage](index)
    if not clean:
        (database.parent / "index.dirty").touch()
    with open_store(database) as owner, open_store(database, owner=False) as reader:
        expected = answers(reader)
        assert answers(owner) == expected
        assert owner.index.flush(600)
        assert owner.index.state().engine == "chroma"
        assert answers(owner) == expected
        kept = list(database.parent.glob("index.quarantine-*"))
        rebuilt = bool(owner.index.state().healed)
    if damage.startswith("database"):
        assert rebuilt
        assert len(kept) == 1
    assert probe(index, database, model=f"hashing-v1-{DIM}", dim=DIM) == ""


def test_a_disk_that_is_full_when_a_damaged_index_is_rebuilt_is_said(database: Path) -> None:
    index = database.parent / "index"
    DAMAGE["database-truncated"](index)
    journal = Journal(database)
    journal.conn.execute("VACUUM")
    (pages,) = journal.conn.execute("PRAGMA page_count").fetchone()
    journal.conn.execute(f"PRAGMA max_page_count = {pages}")
    owner = Owner(index)
    owner.acquire()
    worker = worker_of(database, owner)
    worker.want()
    worker._round(journal)
    assert "The disk is full" in worker.failure
    journal.close()
    owner.release(clean=False)
    with open_store(database) as store:
        assert store.index.flush(120)
        assert store.index.state().engine == "chroma"


def test_a_silently_damaged_graph_is_caught_by_the_probe(path: Path, add: Add) -> None:
    """Counts are right, opening succeeds, neighbours are missing: only searching for known vectors tells."""
    with open_store(path) as store:
        store.commit("default", [add(f"{sentence(i)} {i}") for i in range(1200)], actor="test")
        assert store.index.flush(120)
    index = path.parent / "index"
    graphs = [folder for folder in index.iterdir() if folder.is_dir()]
    assert graphs, "above its sync threshold of 1,000 Chroma keeps a graph in a folder"
    for folder in graphs:
        shutil.rmtree(folder)
    assert "of 20 known vectors" in probe(index, path, model=f"hashing-v1-{DIM}", dim=DIM)
    (path.parent / "index.dirty").touch()
    with open_store(path) as owner, open_store(path, owner=False) as reader:
        assert owner.index.flush(600)
        assert answers(owner) == answers(reader)
        assert "known vectors" in owner.index.state().healed


def test_a_probe_that_crashes_is_a_verdict(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    wrong = probe(database.parent / "index", database, model=f"hashing-v1-{DIM}", dim=DIM)
    assert f"signal {signal.SIGSEGV.value}" in wrong


def test_an_index_of_another_embedder_is_replaced(database: Path) -> None:
    """SQLite holds vectors of the configured model, so a directory that does not is merely stale."""
    assert "evolve memory reindex" in probe(database.parent / "index", database, model="other", dim=DIM)
    with Store.open(database, embedder=HashingEmbedder(32)) as store:
        assert store.reindex() == N
        assert store.index.flush(120)
        assert store.index.state().engine == "chroma"
        found = answers(store)
    with Store.open(database, embedder=HashingEmbedder(32), owner=False) as reader:
        assert answers(reader) == found


def test_a_purge_leaves_no_vector_in_the_index_and_forgetting_alone_takes_it_out_of_searches(database: Path) -> None:
    def holding(vector: bytes) -> list[str]:
        files = [file for folder in database.parent.glob("index*") for file in folder.rglob("*") if file.is_file()]
        return [str(file.relative_to(database.parent)) for file in files if vector in file.read_bytes()]

    shutil.copytree(database.parent / "index", database.parent / "index.quarantine-20260101T000000")
    with open_store(database) as store:
        first, second = store.view("default").records()[:2]
        vector = HashingEmbedder(DIM).embed([first.payload.text()])[0].tobytes()
        assert holding(vector)
        store.forget(second.id)
        assert store.index.flush(120)
        assert store.doctor() == []
        store.forget(first.id, purge=True)
        assert store.index.flush(120)
        assert store.index.state().engine == "chroma"
        assert holding(vector) == []
        assert store.doctor() == []


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_a_purge_has_memory_overwritten_before_chroma_writes_it_to_disk(database: Path) -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    size = 1 << 16
    with open_store(database) as store:
        assert store.index.flush(120)
        store.forget(store.view("default").records()[0].id, purge=True)
        block = libc.malloc(size)
        filled = ctypes.string_at(block, size)
        libc.free(ctypes.c_void_p(block))
    libc.mallopt(index_worker.PERTURB, 0)
    assert set(filled) == {index_worker.FILLED ^ 0xFF}


def test_chroma_is_asked_once_it_is_healed_and_only_where_exact_search_is_slow(tmp_path: Path) -> None:
    worker = worker_of(tmp_path / "evolve.db", Owner(tmp_path / "index"))
    worker._counts = {"large": ENOUGH, "small": 1}
    assert not worker.serves("large")
    assert not worker.serves_any()
    worker.ready.set()
    assert worker.serves("large")
    assert worker.serves_any()
    assert not worker.serves("small")
    assert not worker.serves("unknown")
    worker._counts = {"small": 1}
    assert not worker.serves_any()


def test_a_worker_that_is_told_to_stop_carries_no_more(database: Path) -> None:
    with open_store(database) as store:
        store.index.flush(120)
    index = database.parent / "index"
    journal = Journal(database)
    owner = Owner(index)
    owner.acquire()
    worker = worker_of(database, owner)
    worker.want()
    assert worker.search("default/fact", HashingEmbedder(DIM).embed(["a"])[0], 3) is None, "it is not open"
    chroma = worker._open()
    assert worker.search("default/fact", HashingEmbedder(DIM).embed(["a"])[0], 3) is None, "it is not healed"
    outbox.enqueue_all(journal)
    for stop in (worker._stopping, worker._dropping):
        stop.set()
        worker._carry(journal, chroma)
        assert outbox.pending(journal) == N
        stop.clear()
    worker._carry(journal, chroma)
    assert outbox.pending(journal) == 0
    worker._release()
    journal.close()
    owner.release(clean=True)


def test_what_is_retired_or_quarantined_is_in_no_index(database: Path) -> None:
    with open_store(database) as store:
        first, second = store.view("default").records()[:2]
        store.commit("default", [DeltaOp(op=Op.REMOVE, target_id=first.id)], actor="t")
        assert store.index.flush(120)
        assert store.doctor() == []
        store.commit("default", [DeltaOp(op=Op.RESTORE, target_id=first.id)], actor="t")
        store.commit("default", [DeltaOp(op=Op.REMOVE, target_id=second.id)], actor="t")
        assert store.index.flush(120)
        assert store.doctor() == []
        found = store.recall(RecallQuery(text=second.payload.text(), k=N))
        assert first.id in {each.record.id for each in found}
        assert second.id not in {each.record.id for each in found}


def test_closing_twice_and_leaving_without_closing(database: Path) -> None:
    store = open_store(database)
    store.close()
    store.close()
    with open_store(database) as again:
        assert again.index.flush(60)


def test_the_doctor_compares_chroma_with_the_truth(database: Path) -> None:
    with open_store(database) as store:
        assert store.doctor() == []
        assert store.index.state().engine == "chroma"
        assert agreement(store.journal, store.index, dim=DIM) == 1.0
    with open_store(database, owner=False) as reader:
        assert agreement(reader.journal, reader.index, dim=DIM) is None


def test_the_doctor_reports_missing_neighbours(database: Path) -> None:
    """Half of the vectors are taken out behind the store's back, and as many strangers put in, so that counts agree."""
    with open_store(database, owner=False) as store:
        ids = [record.id for record in store.view("default").records()][::2]
    chroma = ChromaIndex(database.parent / "index", model=f"hashing-v1-{DIM}", dim=DIM)
    chroma.remove("default/fact", ids)
    chroma.upsert("default/fact", [f"stranger{n}" for n in range(len(ids))], HashingEmbedder(DIM).embed(ids))
    chroma.close()
    with open_store(database) as store:
        (finding,) = store.doctor()
        assert (finding.code, finding.level) == ("recall", "warning")
        assert "evolve memory reindex" in finding.fix
        store.reindex()
        assert store.doctor() == []


@pytest.fixture
def worker(database: Path) -> Iterator[tuple[IndexWorker, Journal]]:
    """A worker that was not started: its steps are taken by hand."""
    index, journal = database.parent / "index", Journal(database)
    owner = Owner(index)
    owner.acquire()
    made = worker_of(database, owner)
    yield made, journal
    made._release()
    journal.close()
    owner.release(clean=True)


def test_a_search_that_fails_is_said_and_left_to_exact_search(
    worker: tuple[IndexWorker, Journal], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    made, journal = worker
    (vector,) = HashingEmbedder(DIM).embed(["invoice"])
    chroma = made._open()
    made._carry(journal, chroma)
    assert made.ready.is_set()
    assert made.serves("default/fact")
    assert len(made.search("default/fact", vector, 3) or []) == 3
    chroma._client.delete_collection(chroma._client.list_collections()[0].name)
    assert made.search("default/fact", vector, 3) is None
    assert (made.ready.is_set(), made.serves("default/fact")) == (False, False)
    assert "Chroma cannot use its directory" in made.failure
    (said,) = caplog.records
    assert (said.message, vars(said)["reason"]) == ("index failed, searching exactly", made.failure)
    assert capsys.readouterr().out == ""  # a program's output is its own


def test_an_index_is_rebuilt_twice_and_then_left_alone(
    worker: tuple[IndexWorker, Journal], database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, journal = worker
    (database.parent / "index.quarantine-note").touch()
    for time_ in range(1, 4):
        (database.parent / "index").mkdir(exist_ok=True)
        (database.parent / "index" / f"mark{time_}").touch()
        caplog.clear()
        made._start_over(journal, f"damage {time_}")
        (said,) = caplog.records
        assert vars(said)["reason"] == f"damage {time_}"
        kept = [path for path in database.parent.glob("index.quarantine-*") if path.is_dir()]
        assert len(kept) == 1, "only the latest is kept"
        assert said.message == ("index rebuilt" if time_ <= 2 else "index failed, searching exactly")
        if time_ <= 2:
            assert (kept[0] / f"mark{time_}").exists()
            assert (made.failure, outbox.pending(journal)) == ("", N)
            assert made.healed == f"rebuilt from {N} stored vectors, old files in {str(kept[0])!r}: damage {time_}"
    assert made.failure == "damage 3"
    assert (database.parent / "index" / "mark3").exists()
    assert made.healed.endswith("damage 2")


def test_a_failure_is_shown_and_nobody_waits_for_chroma_then(database: Path) -> None:
    with open_store(database) as store, open_store(database, owner=False) as reader:
        expected = answers(reader)
        assert reader.index.flush(60) is False
        assert reader.index.state() == IndexState("exact", False, 0, "", "")
        assert store.index.flush(120) is True
        assert (store.index.state().owner, store.index.state().failure) == (True, "")
        worker = store.index._worker
        assert worker is not None
        worker._fail("it is broken")
        assert store.index.flush(600) is False
        assert (store.index.state().engine, store.index.state().failure) == ("exact", "it is broken")
        assert answers(store) == expected
        (finding,) = store.doctor()
        assert (finding.level, finding.code, finding.message) == ("warning", "index", "it is broken")
        store.reindex()
        assert store.index.flush(120) is True
        assert store.doctor() == []


def test_a_visit_that_never_opens_chroma_leaves_the_sign_of_an_unclean_stop(database: Path) -> None:
    dirty = database.parent / "index.dirty"
    dirty.touch()
    open_store(database).close()
    assert dirty.exists()
    with open_store(database) as store:
        assert store.index.flush(600)
        assert store.index.state().healed == "", "the probe found nothing wrong"
    assert not dirty.exists()


class Broken(IndexWorker):
    def _work(self, journal: Journal) -> None:
        raise ArithmeticError("a fault of our own")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_by_a_fault_says_so_and_gives_the_lock_back(database: Path) -> None:
    owner = Owner(database.parent / "index")
    owner.acquire()
    broken = worker_of(database, owner, Broken)
    broken.wake()
    broken.start()
    broken.join()
    assert "ended by an unexpected error" in broken.failure
    assert not owner.held
    broken.drop()


def test_a_thread_that_was_told_to_stop_says_nothing(database: Path) -> None:
    owner = Owner(database.parent / "index")
    owner.acquire()
    worker = worker_of(database, owner)
    worker.start()
    worker.stop()
    assert (worker.failure, worker.is_alive(), owner.held) == ("", False, False)


def test_chroma_is_not_opened_before_the_process_had_time_to_end(
    database: Path, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_worker, "SETTLE_SECONDS", 600.0)
    with open_store(database) as store:
        store.commit("default", [add("a last word")], actor="test")
        assert store.index.flush(0.7) is False
        assert store.index.state().pending == 1
    assert not (database.parent / "index.dirty").exists()
