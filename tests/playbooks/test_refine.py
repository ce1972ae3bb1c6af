"""Grow and refine: what is proposed, that it is deterministic, and what the store makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory.errors import BadInput
from memory.records import DeltaOp, Op, Status, UsageCounts
from memory.store import Store
from playbooks.delta_checks import validate
from playbooks.refine import enforce_budget, merge_duplicates
from playbooks.render import cost
from playbooks.view import bullets

Make = Callable[..., Any]
LONG = "Before you delete a file check that it is not shared with anybody and that no task refers to it any more"


def words(text: str) -> int:
    return len(text.split())


def test_exact_duplicates_merge_into_the_most_useful_one(bullet: Make) -> None:
    records = [
        bullet(1, "Log in first."),
        bullet(2, "Log in first", section="VC", usage=UsageCounts(helpful=3)),
        bullet(3, "log out last"),
    ]
    (op,) = merge_duplicates(records)
    assert op.op is Op.MERGE
    assert (op.parent_ids, op.parent_versions) == (("record-2", "record-1"), (1, 1))
    assert op.payload is not None
    assert op.payload["section"] == "VERIFICATION CHECKLIST"


def test_near_duplicates_merge_and_contradictions_do_not(bullet: Make) -> None:
    records = [
        bullet(1, LONG),
        bullet(2, LONG + " today"),
        bullet(3, "payments.send: amount must be cents"),
        bullet(4, "payments.send: amount must be dollars"),
        bullet(5, LONG, status=Status.CANDIDATE),
    ]
    (op,) = merge_duplicates(records)
    assert set(op.parent_ids) == {"record-1", "record-2"}


def test_the_same_records_give_the_same_ops_in_any_order(bullet: Make) -> None:
    records = [bullet(n, f"{LONG} {'x' * (n % 3)}", usage=UsageCounts(helpful=n % 2)) for n in range(1, 9)]
    assert merge_duplicates(records) == merge_duplicates(records[::-1])
    assert enforce_budget(records, 50, words) == enforce_budget(records[::-1], 50, words)
    assert {op.op_id for op in merge_duplicates(records)} != {op.op_id for op in merge_duplicates(records[1:])}


def test_the_budget_keeps_the_useful_and_the_pinned(bullet: Make) -> None:
    records = [
        bullet(1, "one two three", usage=UsageCounts(helpful=5)),
        bullet(2, "one two three", usage=UsageCounts(harmful=5)),
        bullet(3, "one two three", pinned=True, usage=UsageCounts(harmful=9)),
        bullet(4, "one two three"),
    ]
    ops = enforce_budget(records, 10, words, profile="compact")
    assert [op.target_id for op in ops] == ["record-4", "record-2"]
    assert all(op.op is Op.REMOVE and op.base_version == 1 for op in ops)
    assert enforce_budget(records, 100, words) == ()
    with pytest.raises(BadInput, match="unpin some or raise the budget"):
        enforce_budget(records, 3, words, profile="compact")


@pytest.mark.parametrize("profile", ["full", "compact"])
@pytest.mark.parametrize("budget", [0, 7, 40, 41, 60, 200])
def test_the_budget_is_hard(bullet: Make, budget: int, profile: Any) -> None:
    records = [bullet(n, "word " * n) for n in range(1, 12)]
    gone = {op.target_id for op in enforce_budget(records, budget, words, profile=profile)}
    assert cost([r for r in records if r.id not in gone], profile, words) <= budget


def test_merging_in_the_store_supersedes_keeps_counts_and_can_be_undone(store: Store) -> None:
    ops = [
        DeltaOp(op=Op.ADD, payload={"content": text}, usage=UsageCounts(helpful=count))
        for text, count in ((LONG, 2), (LONG + " today", 3), ("quite another rule", 0))
    ]
    added = store.commit("default", ops, actor="test").applied
    merges = merge_duplicates(bullets(store.view("default")))
    assert validate(merges, store.view("default")).rejected == {}
    (result,) = store.commit("default", merges, actor="test").applied
    merged = store.get(result.record_id or "")
    assert merged is not None
    assert merged.usage.helpful == 5
    assert set(merged.supersedes) == {added[0].record_id, added[1].record_id}
    parents = [store.get(record_id) for record_id in merged.supersedes]
    assert [parent.status for parent in parents if parent] == [Status.SUPERSEDED, Status.SUPERSEDED]
    assert store.commit("default", merges, actor="test").results[0].reason == "duplicate"
    assert merge_duplicates(bullets(store.view("default"))) == ()
