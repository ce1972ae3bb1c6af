"""Whatever is proposed: the journal replays to the same state, ops are idempotent, rollback restores the hash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.embedders.hashing import HashingEmbedder
from memory.records import DeltaOp, Op, Provenance, Status, UsageCounts
from memory.store import Store

Plan = tuple[Op, int, int, str, Status]
"""An op, the positions of its target and second parent among the records so far, its text and status."""

PLANS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(list(Op)),
            st.integers(0, 9),
            st.integers(0, 9),
            st.text(min_size=1, max_size=12),
            st.sampled_from(list(Status)),
        ),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=5,
)
LENIENT = settings(max_examples=30, deadline=None)


@contextmanager
def fresh() -> Iterator[Store]:
    with (
        TemporaryDirectory() as folder,
        Store.open(Path(folder) / "evolve.db", embedder=HashingEmbedder(), index="exact") as store,
    ):
        yield store


def make(store: Store, plan: Plan) -> DeltaOp | None:
    op, first, second, text, status = plan
    ids = [record.id for record in store.records("default")]
    fields: dict[str, Any] = {"op": op, "kind": "fact", "status": status, "provenance": Provenance(task_ids=(text,))}
    if op is not Op.ADD:
        if not ids:
            return None
        fields["target_id"] = ids[first % len(ids)]
        fields["parent_ids"] = (ids[first % len(ids)], ids[second % len(ids)])
    if op is Op.TAG:
        fields["usage"] = UsageCounts(helpful=first, harmful=second)
    if op in {Op.ADD, Op.EDIT, Op.MERGE, Op.SUPERSEDE}:
        fields["payload"] = {"content": f"fact {text}"}
    return DeltaOp(**fields)


def run(store: Store, plans: list[list[Plan]]) -> list[list[DeltaOp]]:
    """Commit the plans batch by batch and return the ops that were applied."""
    batches: list[list[DeltaOp]] = []
    for batch in plans:
        ops = [op for op in (make(store, plan) for plan in batch) if op is not None]
        version = store.version("default")
        commit = store.commit("default", ops, actor="hypothesis")
        assert commit.version - version <= 1
        applied = {result.op_id for result in commit.applied}
        batches.append([op for op in ops if op.op_id in applied])
    return batches


def state(store: Store) -> list[dict[str, Any]]:
    return [record.model_dump() for record in store.records("default")]


@LENIENT
@given(PLANS)
def test_the_projection_is_what_the_journal_says(plans: list[list[Plan]]) -> None:
    with fresh() as store:
        run(store, plans)
        before = state(store)
        assert store.doctor() == []
        assert store.doctor(rebuild=True)[0].level == "info"
        assert state(store) == before


@LENIENT
@given(PLANS)
def test_applying_everything_twice_changes_nothing(plans: list[list[Plan]]) -> None:
    with fresh() as store:
        batches = run(store, plans)
        before = (state(store), store.version("default"))
        for ops in batches:
            assert {result.reason for result in store.commit("default", ops, actor="again").results} <= {"duplicate"}
        assert (state(store), store.version("default")) == before


@LENIENT
@given(PLANS, PLANS)
def test_rollback_restores_the_hash_of_the_snapshot(first: list[list[Plan]], second: list[list[Plan]]) -> None:
    with fresh() as store:
        run(store, first)
        snapshot = store.snapshot("default")
        shown = [(r.id, r.version, r.payload, r.status, r.pinned) for r in store.view("default").records()]
        run(store, second)
        store.rollback("default", snapshot.id, actor="operator")
        assert store.snapshot("default").id == snapshot.id
        assert [(r.id, r.version, r.payload, r.status, r.pinned) for r in store.view("default").records()] == shown
        assert store.doctor() == []


@LENIENT
@given(PLANS)
def test_numbers_are_never_reused_and_merged_parents_are_never_recallable(plans: list[list[Plan]]) -> None:
    with fresh() as store:
        run(store, plans)
        records = store.records("default")
        assert [record.number for record in records] == list(range(1, len(records) + 1))
        replaced = {event.subject for event in store.events(type="knowledge.superseded")}
        restored = {event.subject for event in store.events(type="knowledge.restore")}
        live = {record.id for record in store.view("default").records()}
        assert not live & (replaced - restored)
