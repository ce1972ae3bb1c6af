"""Commits: one transaction, per-op validation, numbers, versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memory.errors import JournalError
from memory.operations import op_id
from memory.records import DeltaOp, Op, Status, UsageCounts
from memory.store import Store, estimate_tokens

BOTH_ENGINES = True

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


def test_what_a_store_does_not_have_is_none_or_empty(store: Store) -> None:
    assert (store.get("x"), store.get_run("x"), store.get_reply("x"), store.trajectory("x")) == (None, None, None, None)
    assert (store.namespaces(), store.version("x"), store.records("x"), store.runs()) == ((), 0, (), [])
    assert (store.view("x").version, store.view("x").records()) == (0, ())
    assert (store.journal.load("x"), store.journal.position()) == (None, 0)
    assert (store.ops_of("x"), store.records_of(["x"]), store.written_by(["x"])) == (frozenset(), {}, [])


def test_nothing_came_of_no_ops(store: Store, add: Add) -> None:
    store.commit("default", [add("one")], actor="t")
    assert (store.records_of([]), store.written_by([])) == ({}, [])
    many = ["x", *map(str, range(70_000))]  # more than a statement takes parameters
    assert (store.records_of(many), store.written_by(many)) == ({}, [])


def test_namespaces_are_named_in_order_each_with_its_own_numbers(store: Store, add: Add) -> None:
    for name in ("b", "a", "b"):
        store.commit(name, [add(f"one of {name}"), add(f"two of {name}")], actor="t")
    assert store.namespaces() == ("a", "b")
    assert [record.number for record in store.records("b")] == [1, 2, 3, 4]
    assert [record.number for record in store.records("a")] == [1, 2]
    assert (store.version("a"), store.version("b")) == (1, 2)
    first = store.events(type="knowledge.commit")[0].data
    assert (first["version"], first["applied"], first["refused"]) == (1, 2, 0)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("a" * 400, 100)])
def test_without_a_tokenizer_four_characters_are_a_token(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_a_text_that_is_gone_is_said_with_the_way_out(store: Store, add: Add, reopen: Callable[..., Store]) -> None:
    (result,) = store.commit("default", [add("one")], actor="t").results
    store.db.execute("DELETE FROM content WHERE body LIKE '%one%'")
    with (
        reopen() as again,
        pytest.raises(JournalError, match=r"text of record .* is missing; run `evolve memory doctor`"),
    ):
        again.get(str(result.record_id))


@pytest.mark.parametrize(
    ("op", "missing"),
    [
        (Op.ADD, "payload"),
        (Op.EDIT, "target_id, payload"),
        (Op.TAG, "target_id, usage"),
        (Op.MERGE, "parent_ids, payload"),
        (Op.SUPERSEDE, "target_id, payload"),
        (Op.REMOVE, "target_id"),
        (Op.RESTORE, "target_id"),
    ],
)
def test_an_op_without_what_it_needs_is_none(op: Op, missing: str) -> None:
    with pytest.raises(ValueError, match=f"{op} needs {missing}; got none"):
        DeltaOp(op=op)


def test_an_op_of_another_kind_than_its_target_is_refused(store: Store, add: Add) -> None:
    (first,) = store.commit("default", [add("one")], actor="t").results
    bare = DeltaOp(op=Op.REMOVE, kind="bullet", target_id=first.record_id)
    edit = DeltaOp(op=Op.EDIT, kind="fact", target_id=first.record_id, payload={"content": "two"})
    prepared = [replace(each, op=each.op.model_copy(update={"kind": "bullet"})) for each in store.prepare([edit])]
    (refused,) = store.commit("default", prepared, actor="t").results
    assert refused.reason == f"record {first.record_id!r} is a fact, the op carries a bullet"
    (removed,) = store.commit("default", [bare], actor="t").results
    assert removed.applied, "without a payload the kind says nothing"


def test_an_op_id_follows_from_its_parts() -> None:
    assert op_id("a", "b") == op_id("a", "b") != op_id("ab")
    assert len({op_id("a", "b"), op_id("b", "a"), op_id("a"), op_id()}) == 4
    assert len(op_id("a")) == 26
