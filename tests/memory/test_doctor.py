"""The doctor sees each kind of damage, and a rebuild mends what the journal can mend."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory.doctor import library
from memory.records import DeltaOp, Op, Status, Task, Trajectory, UsageCounts
from memory.store import Store

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
    busy.db.execute("DELETE FROM record_text")
    assert codes(busy) == ["word-index"]
    busy.doctor(rebuild=True)
    assert busy.doctor() == []
    assert busy.db.execute("SELECT text FROM record_text WHERE record_text MATCH 'three'").fetchall() == [
        ("three",),
        ("two and three",),
    ]


def test_altered_and_missing_text_is_found(busy: Store) -> None:
    busy.db.execute("UPDATE content SET body = replace(body, 'uno', 'due')")
    assert codes(busy) == ["altered"]
    busy.db.execute("DELETE FROM content WHERE body LIKE '%due%'")
    assert codes(busy) == ["missing-text"]


def test_a_missing_vector_is_found(busy: Store) -> None:
    busy.db.execute("DELETE FROM embeddings")
    assert codes(busy) == ["vectors"]


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
