"""Recall from a snapshot: the records of then, of the kinds that are asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory.errors import NotFound
from memory.records import DeltaOp, Op, RecallQuery
from memory.snapshots import address
from memory.store import Store
from memory.stored_item import StoredItem

BOTH_ENGINES = True

Add = Callable[..., DeltaOp]


def item(text: str) -> DeltaOp:
    payload = StoredItem(path=("a",), name="n", value={}, searched=(text,))
    return DeltaOp(op=Op.ADD, kind="item", payload=payload.model_dump(mode="json"))


def found(store: Store, snapshot: str, *kinds: str, text: str = "book a room") -> list[str]:
    query = RecallQuery(text=text, kinds=kinds, snapshot_id=snapshot)
    return sorted(each.record.payload.text() for each in store.recall(query))


def test_a_snapshot_is_searched_kind_by_kind(store: Store, add: Add) -> None:
    ops = [add("book a room"), add("book a table"), item("book a flight")]
    first, second, _ = (str(r.record_id) for r in store.commit("default", ops, actor="t").results)
    snapshot = address(store.snapshot("default"))
    edit = DeltaOp(op=Op.EDIT, kind="fact", target_id=first, payload={"content": "cook a meal"})
    store.commit("default", [edit, DeltaOp(op=Op.REMOVE, target_id=second)], actor="t")
    assert found(store, snapshot) == ["book a flight", "book a room", "book a table"]
    assert found(store, snapshot, "fact") == ["book a room", "book a table"]
    assert found(store, snapshot, "item") == ["book a flight"]
    assert found(store, snapshot, "bullet") == []


def test_what_has_no_vector_is_left_out_and_the_others_are_found(store: Store, add: Add) -> None:
    ops = [add("book a room"), add("pay in cents"), item("book a flight")]
    (room, *_) = (str(r.record_id) for r in store.commit("default", ops, actor="t").results)
    snapshot = address(store.snapshot("default"))
    store.db.execute("DELETE FROM embeddings WHERE record_id = ?", (room,))
    assert found(store, snapshot, "fact", text="a room") == ["pay in cents"]


def test_a_snapshot_of_another_namespace_is_none_of_this_one(store: Store, add: Add) -> None:
    store.commit("other", [add("book a room")], actor="t")
    other = address(store.snapshot("other"))
    with pytest.raises(NotFound, match="belongs to namespace 'other', not to 'default'"):
        found(store, other)
    with pytest.raises(NotFound, match="no snapshot 'nothing'"):
        found(store, "nothing")
    query = RecallQuery(text="book", namespace="other", snapshot_id=other.partition("@")[0])
    assert len(store.recall(query)) == 1, "the latest freeze of that name"


def test_a_kind_without_any_vector_is_left_out(store: Store, add: Add) -> None:
    ops = [add("book a room"), add("pay in cents"), item("book a flight")]
    rooms = [str(r.record_id) for r in store.commit("default", ops, actor="t").results[:2]]
    snapshot = address(store.snapshot("default"))
    for record_id in rooms:
        store.db.execute("DELETE FROM embeddings WHERE record_id = ?", (record_id,))
    assert found(store, snapshot) == ["book a flight"]
    assert found(store, snapshot, "fact") == []
