"""What waits is carried to an index, drift is queued, and any step may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from memory import outbox
from memory.embedders.hashing import HashingEmbedder
from memory.indexes.exact import ExactIndex
from memory.protocols import Vector
from memory.records import DeltaOp, Op, Status
from memory.store import Store

BOTH_ENGINES = True

Add = Callable[..., DeltaOp]
DIM = HashingEmbedder().dim
FACTS = "default/fact"


class Listed(ExactIndex):
    """Exact search that can say what it holds."""

    def collections(self) -> list[str]:
        return sorted(self._matrices)

    def ids(self, collection: str) -> list[str]:
        return sorted(self._matrices[collection].ids) if collection in self._matrices else []

    def build(self, collection: str, stopped: Callable[[], bool]) -> None:
        """Nothing is slow to grow."""


@pytest.fixture
def index() -> Listed:
    return Listed()


def commit(store: Store, ops: Sequence[DeltaOp]) -> list[str]:
    return [str(result.record_id) for result in store.commit("default", ops, actor="t").results]


def vector(text: str) -> Vector:
    return HashingEmbedder().embed([text])


def drain(store: Store, index: Listed, limit: int = outbox.BATCH) -> int:
    return outbox.drain(store.journal, index, dim=DIM, limit=limit)


def test_the_oldest_rows_are_carried_first_and_leave_the_outbox(store: Store, add: Add, index: Listed) -> None:
    ids = commit(store, [add("one"), add("two"), add("three")])
    assert outbox.pending(store.journal) == 3
    assert drain(store, index, limit=2) == 2
    assert index.ids(FACTS) == sorted(ids[:2])
    assert outbox.pending(store.journal) == 1
    assert drain(store, index) == 1
    assert drain(store, index) == 0
    assert index.ids(FACTS) == sorted(ids)
    assert index.search(FACTS, vector("three")[0], 1) == [(ids[2], pytest.approx(1.0))]


def test_what_a_record_is_now_decides(store: Store, add: Add, index: Listed) -> None:
    edited, removed, candidate, forgotten = commit(
        store, [add("one"), add("two"), add("three", status=Status.CANDIDATE), add("four")]
    )
    drain(store, index)
    assert index.ids(FACTS) == sorted([edited, removed, forgotten])
    commit(
        store,
        [
            DeltaOp(op=Op.EDIT, kind="fact", target_id=edited, payload={"content": "uno"}),
            DeltaOp(op=Op.REMOVE, target_id=removed),
            DeltaOp(op=Op.RESTORE, target_id=candidate, status=Status.ACTIVE),
        ],
    )
    store.forget(forgotten)
    assert drain(store, index) == 4
    assert index.ids(FACTS) == sorted([edited, candidate])
    assert index.search(FACTS, vector("uno")[0], 1) == [(edited, pytest.approx(1.0))]


def test_a_record_that_nobody_knows_is_taken_out_of_every_collection(store: Store, add: Add, index: Listed) -> None:
    (kept,) = commit(store, [add("one")])
    index.upsert("default/other", ["stranger", "left"], vector("two").repeat(2, axis=0))
    index.upsert(FACTS, ["stranger"], vector("two"))
    store.db.execute("INSERT INTO outbox (record_id, version, action) VALUES ('stranger', 0, 'upsert')")
    assert drain(store, index) == 2
    assert (index.ids(FACTS), index.ids("default/other")) == ([kept], ["left"])


def test_drift_is_queued_and_carried(store: Store, add: Add, index: Listed) -> None:
    ids = commit(store, [add("one"), add("two"), add("three", status=Status.CANDIDATE)])
    drain(store, index)
    assert outbox.reconcile(store.journal, index, thorough=True) == 0
    assert outbox.pending(store.journal) == 0
    index.remove(FACTS, [ids[0]])
    index.upsert("default/other", ["stranger"], vector("two"))
    assert outbox.reconcile(store.journal, index, thorough=False) == 2
    assert outbox.pending(store.journal) == 2
    drain(store, index)
    assert (index.ids(FACTS), index.ids("default/other")) == (sorted(ids[:2]), [])


def test_where_counts_agree_ids_are_compared_only_when_asked_or_while_something_waits(
    store: Store, add: Add, index: Listed
) -> None:
    ids = commit(store, [add("one"), add("two")])
    drain(store, index)
    index.remove(FACTS, [ids[0]])
    index.upsert(FACTS, ["stranger"], vector("two"))
    assert outbox.reconcile(store.journal, index, thorough=False) == 0
    assert outbox.reconcile(store.journal, index, thorough=True) == 2
    drain(store, index)
    index.remove(FACTS, [ids[0]])
    index.upsert(FACTS, ["stranger"], vector("two"))
    commit(store, [add("three")])
    assert outbox.reconcile(store.journal, index, thorough=False) == 2, "what waits already is not queued again"
    assert outbox.pending(store.journal) == 3
    drain(store, index)
    assert outbox.reconcile(store.journal, index, thorough=True) == 0


def test_an_empty_index_is_filled_with_what_can_be_recalled(store: Store, add: Add, index: Listed) -> None:
    ids = commit(store, [add("one"), add("two", status=Status.CANDIDATE), add("three"), add("four")])
    store.forget(ids[3])
    waiting = store.journal.query("SELECT record_id FROM outbox")
    gone = [row for row in waiting if row[0] in (ids[1], ids[3])]
    assert outbox.enqueue_all(store.journal) == 2
    assert outbox.pending(store.journal) == 2 + len(gone), "what is to be removed still is"
    drain(store, index)
    assert index.ids(FACTS) == sorted([ids[0], ids[2]])
