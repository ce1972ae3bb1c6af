"""What each op may do, what is refused and why, and who wins when two write at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from memory.errors import ConflictError
from memory.records import DeltaOp, Op, Provenance, Record, Status, Trust, UsageCounts
from memory.store import Store
from tests.memory.holding import records_with

BOTH_ENGINES = True

Add = Callable[..., DeltaOp]


@pytest.fixture
def seeded(store: Store, add: Add) -> tuple[Store, list[str]]:
    results = store.commit("default", [add("alpha", "t1"), add("beta", "t2"), add("gamma", "t3")], actor="seed").results
    return store, [result.record_id or "" for result in results]


def record(store: Store, record_id: str | None) -> Record[Any]:
    found = store.get(record_id or "")
    assert found is not None
    return found


def edit(target: str, content: str, **fields: Any) -> DeltaOp:
    return DeltaOp(op=Op.EDIT, kind="fact", target_id=target, payload={"content": content}, **fields)


def one(store: Store, op: DeltaOp, **named: Any) -> tuple[bool, str]:
    (result,) = store.commit("default", [op], actor="test", **named).results
    return result.applied, result.reason


def test_good_ops_of_a_batch_are_kept_when_bad_ones_are_refused(store: Store, add: Add) -> None:
    bad_field = DeltaOp(op=Op.ADD, kind="fact", payload={"contents": "typo"})
    bad_kind = DeltaOp(op=Op.ADD, kind="nonsense", payload={"content": "x"})
    bad_vector = DeltaOp(op=Op.ADD, kind="fact", payload={"content": ""})
    commit = store.commit("default", [bad_field, add("kept"), bad_kind, bad_vector, add("kept too")], actor="test")
    assert [result.applied for result in commit.results] == [False, True, False, False, True]
    assert "content" in commit.results[0].reason
    assert "nonsense" in commit.results[2].reason
    assert [r.payload.content for r in store.view("default").records()] == ["kept", "kept too"]
    refused = store.events(type="knowledge.refused")
    assert [event.data["proposed"]["op_id"] for event in refused] == [r.op_id for r in commit.refused]


def test_edit_makes_the_next_version_and_keeps_number_status_and_tasks(seeded: tuple[Store, list[str]]) -> None:
    store, (first, *_) = seeded
    assert one(store, edit(first, "alpha, but better", base_version=1)) == (True, "")
    after = record(store, first)
    assert (after.version, after.number, after.payload.content) == (2, 1, "alpha, but better")
    assert after.provenance.task_ids == ("t1",)


def test_an_edit_written_against_an_older_version_of_the_record_is_refused_and_journalled(
    seeded: tuple[Store, list[str]],
) -> None:
    store, (first, *_) = seeded
    one(store, edit(first, "winner", base_version=1))
    applied, reason = one(store, edit(first, "loser", base_version=1))
    assert not applied
    assert reason.startswith("stale")
    assert record(store, first).payload.content == "winner"
    assert store.history(first)[-1].data["proposed"]["payload"] == {"content": "loser"}


@pytest.mark.parametrize("kind_of_op", [Op.EDIT, Op.SUPERSEDE, Op.MERGE, Op.REMOVE])
def test_an_op_without_base_is_stale_when_its_target_moved_past_the_expected_version(
    seeded: tuple[Store, list[str]], kind_of_op: Op
) -> None:
    store, (first, second, _) = seeded
    one(store, edit(first, "moved on"))
    fields: dict[str, Any] = {"parent_ids": (first, second)} if kind_of_op is Op.MERGE else {"target_id": first}
    op = DeltaOp(op=kind_of_op, kind="fact", payload={"content": "late"}, **fields)
    applied, reason = one(store, op, expected_version=1)
    assert (applied, reason.split(":")[0]) == (False, "stale")
    assert record(store, first).payload.content == "moved on"


def test_an_edit_of_another_record_is_not_stale(seeded: tuple[Store, list[str]]) -> None:
    store, (first, second, _) = seeded
    one(store, edit(first, "moved on"))
    assert one(store, edit(second, "also fine"), expected_version=1) == (True, "")


def test_add_and_tag_rebase_by_themselves(seeded: tuple[Store, list[str]], add: Add) -> None:
    store, (first, *_) = seeded
    one(store, edit(first, "moved on"))
    tag = DeltaOp(op=Op.TAG, target_id=first, usage=UsageCounts(harmful=1))
    commit = store.commit("default", [add("new"), tag], actor="test", expected_version=1)
    assert all(result.applied for result in commit.results)


def test_a_tag_does_not_move_the_version_of_the_namespace(seeded: tuple[Store, list[str]]) -> None:
    store, (first, *_) = seeded
    before = store.version("default")
    tag = DeltaOp(op=Op.TAG, target_id=first, usage=UsageCounts(harmful=1))
    commit = store.commit("default", [tag], actor="test")
    assert (commit.version, store.version("default")) == (before, before)
    assert one(store, edit(first, "still in time"), expected_version=before) == (True, "")
    assert store.version("default") == before + 1
    assert [finding.code for finding in store.doctor(rebuild=True)] == ["rebuilt"]
    assert store.version("default") == before + 1


def test_expecting_a_version_that_was_never_reached_is_an_error(store: Store, add: Add) -> None:
    with pytest.raises(ConflictError, match="version 0"):
        store.commit("default", [add("x")], actor="test", expected_version=7)
    assert store.events() == []


def test_the_same_op_twice_changes_nothing_the_second_time(seeded: tuple[Store, list[str]]) -> None:
    store, (first, *_) = seeded
    op = edit(first, "once")
    store.commit("default", [op], actor="test")
    position = store.journal.position()
    (again,) = store.commit("default", [op], actor="test").results
    assert (again.applied, again.reason, again.version) == (True, "duplicate", 2)
    assert store.journal.position() == position


def test_a_merge_sums_usage_and_carries_the_weakest_trust_and_the_pin(store: Store, add: Add) -> None:
    ops = [
        add("a", usage=UsageCounts(helpful=2), pinned=True, provenance=Provenance(trust=Trust.VERIFIED)),
        add("b", usage=UsageCounts(helpful=1, harmful=3), provenance=Provenance(trust=Trust.IMPORTED)),
    ]
    parents = tuple(r.record_id or "" for r in store.commit("default", ops, actor="test").results)
    merge = DeltaOp(
        op=Op.MERGE,
        kind="fact",
        parent_ids=parents,
        payload={"content": "a, b"},
        provenance=Provenance(trust=Trust.VERIFIED),
    )
    (result,) = store.commit("default", [merge], actor="test").results
    child = record(store, result.record_id)
    assert (child.usage, child.pinned, child.provenance.trust) == (
        UsageCounts(helpful=3, harmful=3),
        True,
        Trust.IMPORTED,
    )
    assert {record(store, parent).status for parent in parents} == {Status.SUPERSEDED}


def test_a_superseded_record_keeps_its_history_and_cannot_be_edited(seeded: tuple[Store, list[str]]) -> None:
    store, (first, *_) = seeded
    op = DeltaOp(op=Op.SUPERSEDE, kind="fact", target_id=first, payload={"content": "alpha II"}, base_version=1)
    (result,) = store.commit("default", [op], actor="test").results
    assert record(store, result.record_id).number == 4
    assert [event.type for event in store.history(first)] == ["knowledge.add", "knowledge.superseded"]
    applied, reason = one(store, edit(first, "too late"))
    assert (applied, "superseded" in reason) == (False, True)


def test_remove_and_restore(seeded: tuple[Store, list[str]], add: Add) -> None:
    store, (first, *_) = seeded
    one(store, DeltaOp(op=Op.REMOVE, target_id=first))
    assert record(store, first).status is Status.RETIRED
    assert first not in {r.id for r in store.view("default").records()}
    one(store, DeltaOp(op=Op.RESTORE, target_id=first, status=Status.ACTIVE))
    assert record(store, first).status is Status.ACTIVE
    assert [r.number for r in store.view("default").records()] == [1, 2, 3]
    (result,) = store.commit("default", [add("delta")], actor="test").results
    assert record(store, result.record_id).number == 4


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (DeltaOp(op=Op.TAG, target_id="nobody", usage=UsageCounts(helpful=1)), "no record"),
        (DeltaOp(op=Op.MERGE, kind="fact", parent_ids=("FIRST", "FIRST"), payload={"content": "x"}), "two different"),
        (DeltaOp(op=Op.TAG, target_id="FIRST", usage=UsageCounts(helpful=-1)), "below 0"),
        (DeltaOp(op=Op.TAG, target_id="FIRST", usage=UsageCounts()), "counts nothing"),
        (DeltaOp(op=Op.EDIT, kind="fact", target_id="FIRST", payload={"content": "alpha"}), "unchanged"),
        (DeltaOp(op=Op.RESTORE, target_id="FIRST"), "unchanged"),
        (DeltaOp(op=Op.ADD, kind="fact", payload={"content": "x"}, status=Status.RETIRED), "cannot give status"),
        (
            DeltaOp(
                op=Op.ADD,
                kind="fact",
                payload={"content": "x"},
                status=Status.ACTIVE,
                provenance=Provenance(trust=Trust.IMPORTED),
            ),
            "imported",
        ),
        (
            DeltaOp(op=Op.SUPERSEDE, kind="fact", target_id="FIRST", payload={"content": "x"}, status=Status.CANDIDATE),
            "cannot give status",
        ),
    ],
)
def test_ops_that_make_no_sense_are_refused_with_the_reason(
    seeded: tuple[Store, list[str]], op: DeltaOp, why: str
) -> None:
    store, (first, *_) = seeded
    update: dict[str, Any] = {"parent_ids": tuple(first if p == "FIRST" else p for p in op.parent_ids)}
    update["target_id"] = first if op.target_id == "FIRST" else op.target_id
    before = store.view("default").records()
    applied, reason = one(store, op.model_copy(update=update))
    assert (applied, why in reason) == (False, True), reason
    assert store.view("default").records() == before


def test_a_record_of_another_namespace_is_out_of_reach(seeded: tuple[Store, list[str]]) -> None:
    store, (first, *_) = seeded
    (result,) = store.commit("other", [edit(first, "stolen")], actor="test").results
    assert not result.applied
    assert store.version("other") == 0


def test_text_vector_and_outbox_row_are_there_when_the_commit_returns(seeded: tuple[Store, list[str]]) -> None:
    store, (first, *_) = seeded
    one(store, edit(first, "delicious"))
    assert records_with(store, "delicious") == [first]
    vectors = store.db.execute("SELECT version, model FROM embeddings WHERE record_id = ?", (first,)).fetchall()
    assert vectors == [(1, store.embedder.model), (2, store.embedder.model)]
    assert ("upsert",) in store.db.execute("SELECT action FROM outbox WHERE record_id = ?", (first,)).fetchall()


def test_an_edit_keeps_a_pin_and_may_set_one(store: Store, add: Add) -> None:
    ids = [str(r.record_id) for r in store.commit("default", [add("a", pinned=True), add("b")], actor="t").results]
    store.commit("default", [edit(ids[0], "c"), edit(ids[1], "d")], actor="t")
    assert [each.pinned for each in store.view("default").records()] == [True, False]
    assert one(store, edit(ids[1], "d", pinned=True)) == (True, ""), "a pin alone is a change"
    assert one(store, edit(ids[1], "d", pinned=True))[1].startswith("unchanged")
    assert [each.pinned for each in store.view("default").records()] == [True, True]


@pytest.mark.parametrize("reason", ["", "it helped"])
def test_why_a_record_was_tagged_is_journalled(store: Store, add: Add, reason: str) -> None:
    (made,) = store.commit("default", [add("a")], actor="t").results
    assert one(store, DeltaOp(op=Op.TAG, target_id=made.record_id, usage=UsageCounts(helpful=1), reason=reason))[0]
    assert store.history(str(made.record_id))[-1].data.get("reason", "") == reason


def test_a_successor_earns_its_own_counters_and_a_merge_carries_those_of_its_parents(store: Store, add: Add) -> None:
    usage = UsageCounts(helpful=2, injected=3)
    ops = [add(text, usage=usage, pinned=text == "a") for text in ("a", "b", "c", "d", "e")]
    ids = [str(r.record_id) for r in store.commit("default", ops, actor="t").results]
    given = UsageCounts(helpful=1)
    made = [
        DeltaOp(op=Op.SUPERSEDE, kind="fact", target_id=ids[0], payload={"content": "f"}),
        DeltaOp(op=Op.MERGE, kind="fact", parent_ids=tuple(ids[1:3]), payload={"content": "g"}),
        DeltaOp(op=Op.MERGE, kind="fact", parent_ids=tuple(ids[3:]), payload={"content": "h"}, usage=given),
    ]
    store.commit("default", made, actor="t")
    assert {each.pinned for each in store.records("default") if each.status is Status.SUPERSEDED} == {False}
    assert [each.usage for each in store.view("default").records()] == [
        UsageCounts(),
        UsageCounts(helpful=4, injected=6),
        given,
    ]


def test_what_outsiders_say_of_trusted_knowledge_is_kept_without_weight(store: Store, add: Add) -> None:
    verified, imported = Provenance(trust=Trust.VERIFIED), Provenance(trust=Trust.IMPORTED)
    ops = [add("a", provenance=verified), add("b", provenance=imported)]
    ids = [str(r.record_id) for r in store.commit("default", ops, actor="t").results]
    for target in ids:
        said = UsageCounts(harmful=2, injected=1)
        assert one(store, DeltaOp(op=Op.TAG, target_id=target, usage=said, provenance=imported))[0]
    trusted, other = (store.history(target)[-1].data for target in ids)
    assert (trusted["usage"], trusted["reported"]) == ({"injected": 1}, {"harmful": 2})
    assert other["usage"] == {"harmful": 2, "injected": 1}
    assert "reported" not in other
    assert [record(store, target).usage.harmful for target in ids] == [0, 2]


def test_the_version_that_was_read_binds_an_op_on_one_record_and_no_merge(seeded: tuple[Store, list[str]]) -> None:
    store, (first, second, third) = seeded
    assert one(store, edit(first, "alpha two"))[0]
    new = {"kind": "fact", "payload": {"content": "anew"}}
    for op in (Op.EDIT, Op.SUPERSEDE, Op.REMOVE):
        fields = {} if op is Op.REMOVE else new
        refused = one(store, DeltaOp(op=op, target_id=first, base_version=1, **fields))
        assert refused == (
            False,
            f"stale: record {first!r} is at version 2, the op was written against 1",
        )
    restore = DeltaOp(op=Op.RESTORE, target_id=first, base_version=1, status=Status.ACTIVE)
    assert "stale" in one(store, restore)[1]
    assert one(store, DeltaOp(op=Op.SUPERSEDE, target_id=first, base_version=2, **new))[0]
    merge = DeltaOp(op=Op.MERGE, parent_ids=(second, third), base_version=7, **new)
    assert one(store, merge) == (True, "")


def test_a_merge_is_stale_when_a_parent_moved_on(seeded: tuple[Store, list[str]]) -> None:
    store, (first, second, _) = seeded
    one(store, edit(first, "moved on"))
    new = {"op": Op.MERGE, "kind": "fact", "parent_ids": (second, first), "payload": {"content": "both"}}
    late = DeltaOp.model_validate(new | {"parent_versions": (1, 1)})
    assert one(store, late) == (False, f"stale: record {first!r} is at version 2, the op was written against 1")
    assert one(store, DeltaOp.model_validate(new | {"parent_versions": (1, 2)})) == (True, "")
    with pytest.raises(ValidationError, match="got 1 versions for 2 parents"):
        DeltaOp.model_validate(new | {"parent_versions": (1,)})


def test_a_commit_that_expects_an_older_namespace_passes_by_what_changed_since(seeded: tuple[Store, list[str]]) -> None:
    store, (first, second, third) = seeded
    assert one(store, edit(first, "alpha two"))[0]
    assert store.version("default") == 2
    new = {"kind": "fact", "payload": {"content": "anew"}}
    merge = DeltaOp(op=Op.MERGE, parent_ids=(second, first), **new)
    refused = one(store, merge, expected_version=1)
    assert refused == (False, f"stale: record {first!r} changed at version 2, the commit expected 1")
    assert one(store, DeltaOp(op=Op.REMOVE, target_id=second), expected_version=1)[0]
    assert one(store, edit(first, "alpha three"), expected_version=2)[0]
    assert one(store, edit(third, "gamma two"), expected_version=4)[0]
