"""Evidence is replayed from the journal: it ages in tasks, belongs to one wording, and ends with a retirement."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import pytest

from memory.evidence import Evidence, Mark, evidence, reported
from memory.records import DeltaOp, Event, Op, Status, Task, Trajectory, UsageCounts
from memory.store import Store
from memory.utility import Utility, utility

BOTH_ENGINES = True

Add = Callable[..., DeltaOp]


def tag(record_id: str, **counts: int) -> DeltaOp:
    version = counts.pop("version", None)
    return DeltaOp(op=Op.TAG, kind="fact", target_id=record_id, base_version=version, usage=UsageCounts(**counts))


def work(store: Store, *ops: DeltaOp, tasks: int = 0, arm: str = "main", run_id: str = "run") -> None:
    """Do so many tasks, then commit what was learned from them."""
    for _ in range(tasks):
        store.add_trajectory(Trajectory(task=Task(id="t", instruction="i"), run_id=run_id, arm=arm))
    if ops:
        store.commit("default", ops, actor="loop", run_id=run_id)


def seen(store: Store, record_id: str, horizon: int = 1000, until: int | None = None) -> Evidence:
    record = store.get(record_id)
    assert record is not None
    return evidence(store.journal, "default", [record], horizon=horizon, until=until)[record_id]


@pytest.fixture
def known(store: Store, add: Add) -> str:
    (result,) = store.commit("default", [add("amount must be cents")], actor="loop", run_id="run").results
    assert result.record_id
    return result.record_id


def test_marks_age_in_tasks_of_runs_that_learned_here(store: Store, known: str) -> None:
    work(store, tag(known, helpful=1, injected=2), tasks=4)
    work(store, tasks=3, arm="no_memory")
    work(store, tasks=5, run_id="an evaluation")
    work(store, tag(known, harmful=1), tasks=6)
    found = seen(store, known)
    assert [(mark.age, mark.counts.helpful, mark.counts.harmful) for mark in found.marks] == [(6, 1, 0), (0, 0, 1)]
    assert (found.born.age, found.idle) == (10, 6)
    assert found.born.seq < found.confirmed_at < found.refuted_at
    assert utility(found, 6) == Utility(helpful=0.5, harmful=1.0)
    assert utility(found, 6).mean == 1.5 / 3.5


def test_nothing_fades_without_a_half_life_and_the_counters_stay(store: Store, known: str) -> None:
    for _ in range(3):
        work(store, tag(known, helpful=1), tasks=10)
    record = store.get(known)
    assert record is not None
    assert utility(seen(store, known), None).mean == record.usage.utility == 4 / 5
    assert utility(seen(store, known), 10).helpful == 1.75


def test_a_bound_is_the_quantile_of_the_beta_distribution() -> None:
    # P(Beta(1, n + 1) <= x) = 1 - (1 - x)^(n + 1)
    assert Utility(harmful=4).upper == pytest.approx(1 - 0.05 ** (1 / 5))
    assert Utility(helpful=4).lower == pytest.approx(0.05 ** (1 / 5))
    assert Utility().mean == 0.5


def test_what_was_said_of_an_earlier_wording_does_not_count(store: Store, known: str) -> None:
    work(store, tag(known, helpful=9), tasks=1)
    edit = DeltaOp(op=Op.EDIT, kind="fact", target_id=known, payload={"content": "amount must be dollars"})
    work(store, edit, tag(known, harmful=1, version=1), tag(known, helpful=1, version=2), tasks=1)
    found = seen(store, known)
    assert [(m.counts.helpful, m.counts.harmful) for m in found.marks] == [(1, 0)]
    assert found.born.age == 0
    record = store.get(known)
    assert record is not None
    assert (record.usage.helpful, record.usage.harmful) == (10, 1), "the raw counters are the record's, not the text's"


def test_a_new_status_keeps_the_evidence_and_a_return_from_retirement_ends_it(store: Store, known: str) -> None:
    work(store, tag(known, harmful=3), tasks=1)
    work(store, DeltaOp(op=Op.RESTORE, kind="fact", target_id=known, status=Status.ACTIVE))
    assert utility(seen(store, known), None).harmful == 3
    work(store, DeltaOp(op=Op.REMOVE, kind="fact", target_id=known), tasks=1)
    work(store, DeltaOp(op=Op.RESTORE, kind="fact", target_id=known, status=Status.ACTIVE), tasks=1)
    assert seen(store, known).marks == ()
    work(store, tag(known, harmful=1), tasks=1)
    assert utility(seen(store, known), None).harmful == 1


def test_a_rollback_begins_the_evidence_of_what_it_brings_back(store: Store, known: str) -> None:
    before = store.snapshot("default")
    work(store, tag(known, harmful=3), tasks=1)
    work(store, DeltaOp(op=Op.REMOVE, kind="fact", target_id=known), tasks=1)
    position, retired = store.journal.position(), seen(store, known)
    store.rollback("default", before.id, actor="operator")
    found = seen(store, known)
    assert (found.marks, found.born.age, found.confirmed_at, found.refuted_at) == ((), 0, 0, 0)
    work(store, tag(known, harmful=1), tasks=2)
    found = seen(store, known)
    assert ([mark.counts.harmful for mark in found.marks], found.born.age) == ([1], 2)
    assert seen(store, known, until=position) == retired


def edit(record_id: str, content: str) -> DeltaOp:
    return DeltaOp(op=Op.EDIT, kind="fact", target_id=record_id, payload={"content": content})


def test_a_new_status_after_a_rollback_keeps_what_was_seen_since(store: Store, known: str) -> None:
    before = store.snapshot("default")
    work(store, edit(known, "amount must be dollars"), tasks=1)
    dollars = store.snapshot("default")
    work(store, tag(known, helpful=5, version=2), tasks=1)
    promote = DeltaOp(op=Op.RESTORE, kind="fact", target_id=known, status=Status.ACTIVE)
    store.rollback("default", before.id, actor="operator")
    work(store, tag(known, harmful=1), tag(known, helpful=7, version=2), tasks=1)
    back = seen(store, known)
    work(store, promote)
    found = seen(store, known)
    assert [mark.counts.harmful for mark in found.marks] == [1], "and not what is said of the abandoned text"
    assert (found.born, found.marks) == (back.born, back.marks)
    store.rollback("default", dollars.id, actor="operator")
    work(store, tag(known, harmful=2), promote, tasks=1)
    assert [mark.counts.harmful for mark in seen(store, known).marks] == [2], "an abandoned text may come back"


def test_a_new_wording_after_a_rollback_begins_its_own_evidence(store: Store, known: str) -> None:
    before = store.snapshot("default")
    work(store, edit(known, "amount must be dollars"), tasks=1)
    store.rollback("default", before.id, actor="operator")
    work(store, tag(known, harmful=1), tasks=3)
    work(store, edit(known, "amount must be francs"), tag(known, helpful=1), tasks=2)
    found = seen(store, known)
    assert [(mark.counts.helpful, mark.counts.harmful) for mark in found.marks] == [(1, 0)]
    assert found.born.age == 0


def test_a_merge_carries_on_what_its_parents_earned(store: Store, known: str, add: Add) -> None:
    work(store, tag(known, helpful=2), tasks=1)
    (twin,) = store.commit("default", [add("cents, please")], actor="loop", run_id="run").results
    merge = DeltaOp(op=Op.MERGE, kind="fact", parent_ids=(known, twin.record_id or ""), payload={"content": "cents"})
    (made,) = store.commit("default", [merge], actor="loop", run_id="run").results
    work(store, tasks=10)
    assert utility(seen(store, made.record_id or ""), 10).helpful == 1.0


def test_it_is_the_same_after_a_rebuild_and_can_be_read_as_it_was(store: Store, known: str) -> None:
    work(store, tag(known, helpful=1), tasks=2)
    position, before = store.journal.position(), seen(store, known)
    work(store, tag(known, harmful=1), tasks=2)
    now = seen(store, known)
    assert seen(store, known, until=position) == before != now
    assert [finding.level for finding in store.doctor(rebuild=True)] == ["info"]
    assert seen(store, known) == now


def test_marks_beyond_the_horizon_are_left_out(store: Store, known: str) -> None:
    work(store, tag(known, harmful=1), tasks=5)
    work(store, tag(known, helpful=1), tasks=5)
    found = seen(store, known, horizon=5)
    assert found.marks == (Mark(found.marks[0].seq, 0, UsageCounts(helpful=1)),)
    assert (found.born.age, found.idle) == (5, 5)


def test_forgetting_a_task_does_not_turn_back_the_clock(reopen: Callable[..., Store], add: Add) -> None:
    with reopen() as store:
        (result,) = store.commit("default", [add("x y z", "elsewhere")], actor="loop", run_id="run").results
        work(store, tasks=4)
        store.forget(task_id="t", purge=True)
        assert seen(store, result.record_id or "").born.age == 4


def test_without_marks_nothing_is_confirmed_refuted_or_shown(store: Store, known: str) -> None:
    work(store, tasks=3)
    found = seen(store, known)
    assert (found.marks, found.confirmed_at, found.refuted_at, found.idle) == ((), 0, 0, 3)
    assert found.supported_at == found.born.seq
    assert found.born.counts == UsageCounts()
    work(store, tag(known, harmful=1), tag(known, injected=1), tag(known, neutral=1), tasks=1)
    found = seen(store, known)
    assert (found.confirmed_at, found.supported_at, found.idle) == (0, found.born.seq, 0)
    assert found.refuted_at == found.marks[0].seq
    work(store, tag(known, helpful=1), tag(known, helpful=1), tasks=1)
    found = seen(store, known)
    assert found.confirmed_at == found.supported_at == found.marks[-1].seq > found.refuted_at
    assert [mark.age for mark in found.marks] == [1, 1, 1, 0, 0]


def test_the_horizon_counts_tasks_and_marks_at_its_edge(store: Store, known: str) -> None:
    for _ in range(4):
        work(store, tag(known, helpful=1), tasks=1)
    assert [len(seen(store, known, horizon=horizon).marks) for horizon in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 4]
    first = seen(store, known).marks[0].seq
    assert [len(seen(store, known, until=at).marks) for at in (first - 1, first)] == [0, 1]


def test_what_outsiders_reported_is_summed_by_counter(store: Store, known: str) -> None:
    note = Event(type="note", data={"reported": {"helpful": 2}})
    assert reported([]) == {}
    assert reported([note, Event(type="note"), note.model_copy(update={"data": {"reported": {"harmful": 1}}})]) == {
        "helpful": 2,
        "harmful": 1,
    }


@pytest.mark.parametrize(("age", "half_life", "weight"), [(0, 4, 1.0), (4, 4, 0.5), (8, 4, 0.25), (8, None, 1.0)])
def test_a_mark_weighs_half_after_each_half_life(age: int, half_life: float | None, weight: float) -> None:
    marks = (Mark(1, age, UsageCounts(helpful=2, harmful=3)),)
    found = utility(Evidence(Mark(0, age, UsageCounts()), marks), half_life)
    assert (found.helpful, found.harmful, found.weight) == (2 * weight, 3 * weight, 5 * weight)
    assert found.mean == (2 * weight + 1) / (5 * weight + 2)
    assert 0 < found.lower < found.mean < found.upper < 1


def test_both_bounds_hold_what_is_known_of_both_sides() -> None:
    # for whole numbers, P(Beta(s + 1, h + 1) <= x) is that of at least s + 1 of s + h + 1 throws, each won with x
    worth = Utility(helpful=3, harmful=1)
    for bound, share in ((worth.lower, 0.05), (worth.upper, 0.95)):
        won = sum(comb(5, k) * bound**k * (1 - bound) ** (5 - k) for k in range(4, 6))
        assert won == pytest.approx(share)
