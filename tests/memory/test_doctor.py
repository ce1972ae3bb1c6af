"""The doctor sees each kind of damage, and a rebuild mends what the journal can mend."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory import doctor
from memory.database_engine import Connection
from memory.doctor import agreement, library
from memory.embedders.hashing import HashingEmbedder
from memory.live_index import LiveIndex
from memory.protocols import Vector
from memory.records import DeltaOp, Op, Status, Task, Trajectory, UsageCounts
from memory.store import Store
from tests.memory.holding import records_with

BOTH_ENGINES = True

Add = Callable[..., DeltaOp]


@pytest.fixture
def busy(store: Store, add: Add) -> Store:
    """A store in which everything happened once."""
    one, two, three = (
        r.record_id or ""
        for r in store.commit("default", [add("one", "t1"), add("two"), add("three")], actor="t").results
    )
    before = store.snapshot("default")
    ops = [
        DeltaOp(op=Op.EDIT, kind="fact", target_id=one, payload={"content": "uno"}),
        DeltaOp(op=Op.TAG, target_id=two, usage=UsageCounts(helpful=2)),
        DeltaOp(op=Op.MERGE, kind="fact", parent_ids=(two, three), payload={"content": "two and three"}),
        DeltaOp(op=Op.REMOVE, target_id="nobody"),
    ]
    store.commit("default", ops, actor="t")
    store.rollback("default", before.id, actor="t")
    store.commit("default", [DeltaOp(op=Op.RESTORE, target_id=one, status=Status.ACTIVE, pinned=True)], actor="t")
    store.add_trajectory(Trajectory(id="traj", task=Task(id="t1", instruction="i")))
    store.put_run("r", {"n": 1})
    store.put_run("r", {"n": 2})
    store.put_reply("k", {"text": "x"})
    store.snapshot("default")
    return store


def codes(store: Store) -> list[str]:
    return [finding.code for finding in store.doctor()]


def test_a_healthy_database_has_no_findings_and_rebuilds_exactly(busy: Store) -> None:
    assert busy.doctor() == []
    (finding,) = busy.doctor(rebuild=True)
    assert (finding.level, finding.code) == ("info", "rebuilt")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE records SET status = 'active', pinned = 1 - pinned",
        "UPDATE usage SET helpful = helpful + 1",
        "DELETE FROM usage WHERE record_id = (SELECT min(record_id) FROM usage)",
        "UPDATE namespaces SET next_number = 1",
        "DELETE FROM ops",
        "DELETE FROM record_tasks",
        "UPDATE snapshots SET body = '[]'",
        "DELETE FROM trajectories",
        "UPDATE runs SET hash = 'x'",
        "DELETE FROM replies",
    ],
)
def test_a_projection_that_disagrees_with_the_journal_is_found_and_mended(busy: Store, damage: str) -> None:
    busy.db.execute(damage)
    assert "projection" in codes(busy)
    assert busy.doctor(rebuild=True)[0].level == "warning"
    assert busy.doctor() == []


def test_a_lost_word_index_is_found_and_mended(busy: Store) -> None:
    busy.journal.words.clear()
    assert codes(busy) == ["word-index"]
    busy.doctor(rebuild=True)
    assert busy.doctor() == []
    shown = [busy.get(found) for found in records_with(busy, "three")]
    assert [record.payload.content for record in shown if record] == ["three", "two and three"]


def test_altered_and_missing_text_is_found(busy: Store) -> None:
    busy.db.execute("UPDATE content SET body = replace(body, 'uno', 'due')")
    assert codes(busy) == ["altered"]
    busy.db.execute("DELETE FROM content WHERE body LIKE '%due%'")
    assert codes(busy) == ["missing-text"]


def test_a_missing_vector_is_found(busy: Store) -> None:
    busy.db.execute("DELETE FROM embeddings")
    assert codes(busy) == ["vectors"]


def test_a_vector_of_another_text_is_found_and_made_anew(busy: Store) -> None:
    busy.db.execute("UPDATE embeddings SET sha256 = 'that of a text by which an earlier version found it'")
    assert codes(busy) == ["vectors"]
    busy.reindex()
    assert busy.doctor() == []


@pytest.mark.sqlite
def test_a_journal_that_lost_its_beginning_is_found(busy: Store) -> None:
    busy.db.execute("DROP TRIGGER events_no_delete")
    busy.db.execute("DELETE FROM events WHERE seq = (SELECT min(seq) FROM events)")
    assert codes(busy)[0] in {"journal", "projection"}


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 0), False),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 53, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_a_library_with_the_known_fault_is_named(version: tuple[int, ...], safe: bool) -> None:
    said = library(version)
    assert (said is None) is safe
    if said:
        assert ".".join(map(str, version)) in said.message
        assert "3.51.3" in said.fix


@pytest.mark.sqlite
def test_damaged_pages_are_a_finding_that_names_the_way_out(busy: Store) -> None:
    busy.close()
    path = busy.journal.path
    body = bytearray(path.read_bytes())
    page = 4096
    for at in range(page * 3, len(body), page * 5):
        body[at : at + page] = b"Z" * page
    path.write_bytes(body)
    with Store.open(path, embedder=busy.embedder, index="exact") as damaged:
        found = damaged.doctor()
    assert {finding.code for finding in found} == {"damaged"}
    assert all("evolve memory salvage" in finding.fix for finding in found)


class Answering(LiveIndex):
    """An index that answers as exact search does, but for what `change` makes of it."""

    def __init__(self, store: Store, change: Callable[[list[tuple[str, float]]], list[tuple[str, float]]]) -> None:
        super().__init__(store.journal, None, dim=store.embedder.dim)
        self.change, self.asked = change, 0

    def flush(self, timeout: float = 60.0) -> bool:
        return True

    def search(self, namespace: str, kind: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        self.asked += 1
        return self.change(self.blobs.search(namespace, kind, vector, k))


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lambda hits: hits, 1.0),
        (lambda hits: hits[:-1], 0.9),
        (lambda hits: hits[2:], 0.8),
        (lambda hits: [], 0.0),
        (lambda hits: [*hits[:-1], ("other", hits[-1][1] - 5e-6)], 1.0),
        (lambda hits: [*hits[:-1], ("other", hits[-1][1] - 5e-5)], 0.9),
    ],
)
def test_the_share_is_of_the_ten_nearest_of_twenty_stored_vectors(
    store: Store,
    add: Add,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[list[tuple[str, float]]], list[tuple[str, float]]],
    share: float,
) -> None:
    monkeypatch.setattr(doctor, "EXACT_NUMBERS", 10 * HashingEmbedder().dim)
    store.commit("default", [add(f"rule number {at} of {at * 7919 % 1000}") for at in range(50)], actor="t")
    index = Answering(store, change)
    assert agreement(store.journal, index, dim=store.embedder.dim) == pytest.approx(share)
    assert index.asked == 20


def test_only_collections_for_which_exact_search_is_slow_are_compared(
    store: Store, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "EXACT_NUMBERS", 10 * HashingEmbedder().dim)
    store.commit("default", [add(f"rule number {at}") for at in range(10)], actor="t")
    index = Answering(store, lambda hits: hits)
    assert agreement(store.journal, index, dim=store.embedder.dim) is None
    store.commit("default", [add("one more"), add("a candidate", status=Status.CANDIDATE)], actor="t")
    assert agreement(store.journal, index, dim=store.embedder.dim) == 1.0
    assert index.asked == 11, "where there are few, each is asked for"
    store.forget(store.view("default").records()[0].id)
    assert agreement(store.journal, index, dim=store.embedder.dim) is None


def test_how_much_a_database_holds_is_counted(busy: Store) -> None:
    assert doctor.held(busy.journal) == (4, 1)


@pytest.mark.sqlite
def test_a_journal_that_cannot_be_replayed_is_found(busy: Store) -> None:
    busy.db.execute("DROP TRIGGER events_no_update")
    busy.db.execute("UPDATE events SET meta = '{}' WHERE type = 'knowledge.edit'")
    (finding,) = [each for each in busy.doctor() if each.code == "journal"]
    assert finding.level == "error"
    assert finding.message.startswith("the journal cannot be replayed: KeyError(")
    assert "evolve memory salvage" in finding.fix


def test_what_is_missing_or_altered_is_counted_and_named(busy: Store) -> None:
    busy.db.execute("UPDATE content SET body = replace(body, 'two', 'due')")
    (finding,) = busy.doctor()
    assert finding.message.startswith("2 stored texts do not have the hash they are kept under, e.g. ")
    busy.db.execute("DELETE FROM content WHERE body LIKE '%due%'")
    (finding,) = busy.doctor()
    assert finding.message.startswith("2 texts are missing though nobody purged them, e.g. ")


def test_what_others_write_meanwhile_is_no_damage(
    busy: Store, reopen: Callable[..., Store], add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = doctor.replay

    def slow(source: Connection, target: Connection) -> int:
        count = replay(source, target)
        other.put_reply("of another process", {"text": "y"})
        other.commit("default", [add("four")], actor="t")
        return count

    with reopen() as other:
        monkeypatch.setattr(doctor, "replay", slow)
        assert busy.doctor() == []
        monkeypatch.undo()
        assert busy.get_reply("of another process") == {"text": "y"}
        assert busy.doctor() == []
