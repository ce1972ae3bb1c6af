"""Commits: one transaction, per-op validation, numbers, versions."""

from __future__ import annotations

from collections.abc import Callable

from memory.records import DeltaOp, Op, Status, UsageCounts
from memory.store import Store

Add = Callable[..., DeltaOp]


def test_added_record_comes_back_as_it_was_given(store: Store, add: Add) -> None:
    result = store.commit("default", [add("ids are hexadecimal", "t1")], actor="test")
    record = store.get(result.results[0].record_id or "")
    assert record is not None
    assert (record.payload.content, record.number, record.version, record.label) == (
        "ids are hexadecimal",
        1,
        1,
        "tst-00001",
    )
    assert record.provenance.task_ids == ("t1",)
    assert store.view("default").records() == (record,)
    assert result.version == store.version("default") == 1


def test_tag_changes_usage_only(store: Store, add: Add) -> None:
    record_id = store.commit("default", [add("x")], actor="test").results[0].record_id
    before = store.get(record_id or "")
    tag = DeltaOp(op=Op.TAG, target_id=record_id, usage=UsageCounts(helpful=2))
    assert store.commit("default", [tag], actor="test").version == 1
    after = store.get(record_id or "")
    assert before is not None
    assert after == before.model_copy(update={"usage": UsageCounts(helpful=2)})


def test_merge_supersedes_every_parent(store: Store, add: Add) -> None:
    first, second = (
        r.record_id or "" for r in store.commit("default", [add("a", "t1"), add("b", "t2")], actor="t").results
    )
    merge = DeltaOp(op=Op.MERGE, kind="fact", parent_ids=(first, second), payload={"content": "a and b"})
    (result,) = store.commit("default", [merge], actor="t").results
    (live,) = store.view("default").records()
    assert (live.id, live.number, live.supersedes) == (result.record_id, 3, (first, second))
    assert live.provenance.task_ids == ("t1", "t2")
    for parent in (first, second):
        record = store.get(parent)
        assert record is not None
        assert record.status is Status.SUPERSEDED


def test_a_view_stays_as_it_was_read(store: Store, add: Add) -> None:
    record_id = store.commit("default", [add("first")], actor="t").results[0].record_id or ""
    view = store.view("default")
    edit = DeltaOp(op=Op.EDIT, kind="fact", target_id=record_id, payload={"content": "second"})
    store.commit("default", [edit, add("third")], actor="t")
    seen = view.get(record_id)
    assert seen is not None
    assert (view.version, len(view.records("fact")), view.records("other")) == (1, 1, ())
    assert seen.payload.content == "first"
    assert view.get("nobody") is None
    assert [record.payload.content for record in store.view("default").records()] == ["second", "third"]
