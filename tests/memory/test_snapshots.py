"""Snapshots name a set; rollback brings it back and is itself an event; blame."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory.errors import NotFound
from memory.records import DeltaOp, Op, Status, UsageCounts
from memory.snapshots import address
from memory.store import Store
from tests.memory.holding import records_with

BOTH_ENGINES = True

Add = Callable[..., DeltaOp]


def edit(target: str, content: str) -> DeltaOp:
    return DeltaOp(op=Op.EDIT, kind="fact", target_id=target, payload={"content": content}, reason="it was wrong")


def contents(store: Store, snapshot_id: str | None = None) -> list[str]:
    return [record.payload.content for record in store.view("default", snapshot_id).records()]


@pytest.fixture
def pair(store: Store, add: Add) -> tuple[str, str]:
    first, second = (r.record_id or "" for r in store.commit("default", [add("one"), add("two")], actor="t").results)
    return first, second


def test_rollback_restores_the_set_its_hash_and_its_searchable_text(
    store: Store, add: Add, pair: tuple[str, str]
) -> None:
    before = store.snapshot("default")
    store.commit("default", [edit(pair[0], "uno"), add("three"), DeltaOp(op=Op.REMOVE, target_id=pair[1])], actor="t")
    assert contents(store) == ["uno", "three"]
    version = store.version("default")
    commit = store.rollback("default", before.id, actor="operator")
    assert contents(store) == ["one", "two"]
    assert store.snapshot("default").id == before.id
    assert commit.version == store.version("default") == version + 1
    assert len(commit.applied) == 3
    assert store.events(type="knowledge.rollback")[0].subject == before.id
    assert (records_with(store, "one"), records_with(store, "uno")) == ([pair[0]], [])
    assert store.doctor() == []


def test_versions_go_on_counting_after_a_rollback(store: Store, pair: tuple[str, str]) -> None:
    before = store.snapshot("default")
    store.commit("default", [edit(pair[0], "uno")], actor="t")
    store.rollback("default", before.id, actor="operator")
    (result,) = store.commit("default", [edit(pair[0], "eins")], actor="t").results
    assert result.version == 3
    assert contents(store) == ["eins", "two"]


def test_a_rollback_leaves_what_is_as_it_was_alone(store: Store, pair: tuple[str, str]) -> None:
    before = store.snapshot("default")
    store.commit("default", [edit(pair[0], "uno")], actor="t")
    commit = store.rollback("default", before.id, actor="operator")
    assert [result.record_id for result in commit.results] == [pair[0]]
    assert commit.version == store.version("default") == 3
    assert [event.type for event in store.history(pair[1])] == ["knowledge.add"]
    assert len(store.history(pair[0])) == 3
    assert [finding.message for finding in store.doctor(rebuild=True)] == [
        f"rebuilt the projection from {len(store.events())} events; it was exact"
    ]


def test_a_rollback_can_be_rolled_back(store: Store, add: Add, pair: tuple[str, str]) -> None:
    before = store.snapshot("default")
    store.commit("default", [edit(pair[0], "uno"), add("three")], actor="t")
    after = store.snapshot("default")
    store.rollback("default", before.id, actor="operator")
    store.rollback("default", after.id, actor="operator")
    assert contents(store) == ["uno", "two", "three"]
    assert store.snapshot("default").id == after.id


def test_a_snapshot_keeps_text_and_usage_of_its_time(store: Store, pair: tuple[str, str]) -> None:
    frozen = store.snapshot("default")
    tag = DeltaOp(op=Op.TAG, target_id=pair[0], usage=UsageCounts(helpful=5))
    store.commit("default", [tag, edit(pair[0], "uno")], actor="t")
    (first, _) = store.view("default", frozen.id).records()
    assert (first.payload.content, first.version, first.usage) == ("one", 1, UsageCounts())
    assert store.get_snapshot(frozen.id) == frozen


def test_the_same_set_has_the_same_name_and_each_freeze_of_its_usage_an_address(
    store: Store, pair: tuple[str, str]
) -> None:
    first = store.snapshot("default")
    assert store.snapshot("default") == first
    store.commit("default", [DeltaOp(op=Op.TAG, target_id=pair[0], usage=UsageCounts(helpful=1))], actor="t")
    second = store.snapshot("default")
    assert (second.id, second.position > first.position) == (first.id, True)
    assert store.snapshots("default") == (first, second)
    assert store.view("default", address(first)).records()[0].usage == UsageCounts()
    assert store.view("default", first.id).records()[0].usage == UsageCounts(helpful=1)


def test_blame_names_who_wrote_the_present_text(store: Store, pair: tuple[str, str]) -> None:
    store.commit("default", [edit(pair[0], "uno")], actor="curator", run_id="run-7")
    store.commit("default", [DeltaOp(op=Op.RESTORE, target_id=pair[0], status=Status.ACTIVE)], actor="gate")
    event = store.blame(pair[0])
    assert (event.type, event.run_id, event.data["actor"], event.data["reason"]) == (
        "knowledge.edit",
        "run-7",
        "curator",
        "it was wrong",
    )


def test_unknown_names_are_not_found(store: Store, pair: tuple[str, str]) -> None:
    with pytest.raises(NotFound, match="nothing"):
        store.get_snapshot("nothing")
    with pytest.raises(NotFound, match="no record"):
        store.blame("nothing")
    other = store.snapshot("empty").id
    with pytest.raises(NotFound, match="belongs to namespace"):
        store.rollback("default", other, actor="t")


def test_a_rollback_is_a_change_that_a_writer_who_read_before_did_not_see(store: Store, pair: tuple[str, str]) -> None:
    before = store.snapshot("default")
    store.commit("default", [edit(pair[0], "uno")], actor="t")
    assert store.rollback("default", before.id, actor="operator").version == 3
    (late,) = store.commit("default", [edit(pair[0], "eins")], actor="t", expected_version=2).results
    assert late.reason == f"stale: record {pair[0]!r} changed at version 3, the commit expected 2"
    again = store.rollback("default", before.id, actor="operator")
    assert (again.results, again.version, store.version("default")) == ((), 3, 3)
