"""Which skills a task is shown: the ways in their order, what they require, the budget, and no peeking."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.embedders.hashing import HashingEmbedder
from memory.errors import BadInput
from memory.records import Provenance, Record, Task, UsageCounts
from skills.library import Library
from skills.record import Skill
from skills.retrieval import Choice, Choosing, choose, overlap

Kept = Callable[..., Record[Skill]]
TASK = Task(id="t9", instruction="Pay Mirak 80 dollars for the taxi", scenario="pay_person")


def names(choice: Choice) -> list[tuple[str, str]]:
    return [(each.record.payload.name, each.way) for each in choice.chosen]


def lines(records: object) -> int:
    return len(list(records))  # type: ignore


@pytest.fixture
def library(skill: Kept) -> Library:
    return Library(
        [
            skill(1, "far", origin="Water the plants in room twelve", summary="water plants"),
            skill(2, "says", origin="An entirely other wish", summary="Pay a taxi by card"),
            skill(3, "asked", origin="Pay Rodor 12.50 dollars for the lunch"),
            skill(4, "same", scenario="pay_person", origin="Something else"),
            skill(5, "asked_too", origin="Please pay Rodor 12.50 dollars for the lunch at once", scenario="other"),
        ]
    )


def test_the_scenario_comes_before_the_query_and_the_description_last(library: Library) -> None:
    expected = [("same", "scenario"), ("asked", "query"), ("asked_too", "query"), ("says", "description")]
    assert names(choose(library, TASK)) == expected
    assert names(choose(library, TASK, Choosing(k=2))) == expected[:2]
    assert names(choose(library, TASK, Choosing(ways=("query",)))) == expected[1:3]
    assert names(choose(library, TASK.model_copy(update={"scenario": ""}))) == expected[1:]
    assert choose(library, TASK, Choosing(k=0)) == Choice()
    assert choose(Library(), TASK) == Choice()


def test_the_same_skills_stand_in_one_order_whatever_found_them(library: Library) -> None:
    """A prompt that changes with a score is computed anew by every cache, and run anew by every gate."""
    everything = Choosing(query=0, description=0)
    other = Task(id="t8", instruction="Water the plants in room twelve", scenario="other")
    found = [choose(library, task, everything) for task in (TASK, other)]
    assert names(found[0]) != names(found[1])
    assert all([record.payload.name for record in each.records] == list(library.names) for each in found)


def test_what_served_others_comes_last_whatever_the_words(skill: Kept) -> None:
    helped, harmed = UsageCounts(helpful=3), UsageCounts(helpful=1, harmful=4)
    library = Library(
        [
            skill(1, "new", summary="water plants"),
            skill(2, "served", summary="water plants", usage=helped),
            skill(3, "failed", summary="water plants", usage=harmed),
            skill(4, "asked", origin=TASK.instruction),
        ]
    )
    assert names(choose(library, TASK)) == [("asked", "query"), ("served", "used")]


def test_by_embedding_of_the_query_or_of_the_description_where_none_is_known(skill: Kept) -> None:
    library = Library(
        [skill(1, "a", origin="pay for taxis"), skill(2, "b", summary="paying taxi"), skill(3, "c", origin="xyz")]
    )
    how = Choosing(ways=("embedding",), embedding=0.1)
    found = choose(library, TASK, how, embedder=HashingEmbedder())
    assert sorted(names(found)) == [("a", "embedding"), ("b", "embedding")]
    assert found.chosen[0].score >= found.chosen[1].score
    with pytest.raises(BadInput, match="there is no embedder"):
        choose(library, TASK, how)


def test_what_a_skill_requires_comes_with_it_and_counts_in_the_budget(skill: Kept) -> None:
    library = Library(
        [
            skill(1, "big", "x", "y", origin=TASK.instruction),
            skill(2, "x"),
            skill(3, "y"),
            skill(4, "small", "x", origin=TASK.instruction),
        ]
    )
    whole = choose(library, TASK)
    assert [record.payload.name for record in whole.records][-2:] != ["x", "y"]
    assert {record.payload.name for record in whole.records} == {"big", "x", "y", "small"}
    assert [each.record.payload.name for each in choose(library, TASK, Choosing(budget=2), cost=lines).chosen] == [
        "small"
    ]
    assert lines(choose(library, TASK, Choosing(budget=4), cost=lines).records) == 4
    with pytest.raises(BadInput, match="no `cost`"):
        choose(library, TASK, Choosing(budget=2))


def test_frozen_a_task_is_not_shown_what_was_made_from_it(skill: Kept) -> None:
    own = Provenance(task_ids=("t1", "t9"))
    library = Library(
        [
            skill(1, "own", origin=TASK.instruction, provenance=own),
            skill(2, "caller", "own", origin=TASK.instruction),
            skill(3, "free", origin=TASK.instruction, provenance=Provenance(task_ids=("t1",))),
        ]
    )
    assert [name for name, _ in names(choose(library, TASK, Choosing(leave_out=True)))] == ["free"]
    assert [name for name, _ in names(choose(library, TASK))] == ["own", "caller", "free"]


def test_a_skill_that_cannot_be_used_is_left_out_and_said(skill: Kept) -> None:
    library = Library([skill(1, "a", "gone", origin=TASK.instruction), skill(2, "b", origin=TASK.instruction)])
    choice = choose(library, TASK)
    assert [name for name, _ in names(choice)] == ["b"]
    assert choice.unusable == {"a": "skill 'a' requires 'gone', which is not in use; restore or save 'gone'"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(order=st.permutations(range(6)), k=st.integers(0, 7), budget=st.integers(0, 8))
def test_order_of_records_never_matters_and_limits_hold(skill: Kept, order: list[int], k: int, budget: int) -> None:
    records = [skill(at + 1, f"f{at}", *(["f0"] if at % 2 else []), origin=TASK.instruction) for at in range(6)]
    how = Choosing(k=k, budget=budget)
    choice = choose(Library(records[at] for at in order), TASK, how, cost=lines)
    assert choice == choose(Library(records), TASK, how, cost=lines)
    assert len(choice.chosen) <= k
    assert len(choice.records) <= budget
    assert [each.record.number for each in choice.chosen] == sorted(each.record.number for each in choice.chosen)


@given(first=st.text(max_size=30), second=st.text(max_size=30))
def test_overlap_is_a_symmetric_share(first: str, second: str) -> None:
    assert 0.0 <= overlap(first, second) == overlap(second, first) <= 1.0
    assert overlap(first, first) in (0.0, 1.0)


def test_overlap_sees_the_order_of_words() -> None:
    assert overlap("pay the bill", "pay the bill") == 1.0
    assert overlap("pay the bill", "bill the pay") < 0.7
