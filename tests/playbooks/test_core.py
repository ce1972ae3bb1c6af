"""The core: who is in it, and that it holds still between compaction points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory.errors import BadInput
from memory.records import Status, UsageCounts
from playbooks.core import Core, choose, core_records, due
from playbooks.render import cost
from playbooks.view import RecordView

Make = Callable[..., Any]


def words(text: str) -> int:
    return len(text.split())


@pytest.fixture
def records(bullet: Make) -> list[Any]:
    useful, harmful = UsageCounts(helpful=8), UsageCounts(harmful=8)
    return [
        bullet(1, "not measured yet"),
        bullet(2, "measured and good", status=Status.ACTIVE, usage=useful),
        bullet(3, "pinned by hand", pinned=True),
        bullet(4, "measured and bad", status=Status.ACTIVE, usage=harmful),
        bullet(5, "measured, never used", status=Status.ACTIVE),
        bullet(6, "pinned, but retired", pinned=True, status=Status.RETIRED),
    ]


def test_core_is_pinned_or_active_and_useful(records: list[Any]) -> None:
    core = choose(RecordView(records), 1000, words, profile="compact", tasks_done=7)
    assert core == Core(ids=("record-2", "record-3", "record-5"), tasks=7)


def test_core_takes_at_most_half_the_budget_best_first(records: list[Any]) -> None:
    core = choose(RecordView(records), 20, words, profile="compact")
    assert core.ids == ("record-2", "record-3")
    kept = [record for record in records if record.id in core.ids]
    assert cost(kept, "compact", words) <= 10


def test_pinned_records_over_half_the_budget_are_an_error_not_a_silent_cut(records: list[Any]) -> None:
    with pytest.raises(BadInput, match="1 pinned records take 5 tokens, the budget is 3"):
        choose(RecordView(records), 6, words, profile="compact")


@pytest.mark.parametrize(
    ("core", "done", "expected"),
    [(Core(), 0, True), (Core(tasks=0), 49, False), (Core(tasks=0), 50, True), (Core(tasks=30), 79, False)],
)
def test_compaction_points_are_fifty_tasks_apart(core: Core, done: int, expected: bool) -> None:
    assert due(core, done) is expected


def test_a_retired_core_record_stays_until_compaction_a_rejected_or_purged_one_goes_at_once(bullet: Make) -> None:
    core = Core(ids=("record-1", "record-2", "record-3", "record-9"), tasks=0)
    view = RecordView(
        [
            bullet(2, "retired since", status=Status.RETIRED),
            bullet(1, "still there"),
            bullet(3, "rejected since", status=Status.REJECTED),
        ]
    )
    assert [record.number for record in core_records(core, view)] == [1, 2]
