"""Notes without a model, and curators side by side."""

from __future__ import annotations

import pytest

from memory.records import Insight, Op, Reflection
from memory.store import Store
from playbooks.curator import DirectCurator
from playbooks.several import SeveralCurators
from policies.scripted import ScriptedPolicy
from tests.playbooks.notebooks import LOGIN, UNITS, Notebook, episode

CENTS = "payments.send: amount must be cents"


def plain(store: Store) -> Notebook:
    return Notebook(store, ScriptedPolicy([]), writer="rules")


async def test_a_note_is_written_from_the_lessons_of_a_cluster(store: Store) -> None:
    notebook = plain(store)
    (op,) = await notebook.propose([episode(1, UNITS), episode(2, UNITS)], insights=(Insight(content=CENTS),))
    store.commit("default", [op], actor="test")
    (note,) = notebook.notes()
    assert note.payload.correct_approach == CENTS
    assert note.payload.subject == "payments.send amount"
    assert UNITS in note.payload.mistake_summary
    assert note.payload.anti_patterns
    assert note.payload.failure_ids == ("t1", "t2")


async def test_the_same_subject_supersedes_without_a_model(store: Store) -> None:
    notebook = plain(store)
    for number, value in ((1, "cents"), (2, "dollars")):
        insight = Insight(content=f"payments.send: amount must be {value}")
        ops = await notebook.propose([episode(number, UNITS)], insights=(insight,))
        store.commit("default", ops, actor="test")
    (note,) = notebook.notes()
    assert note.payload.correct_approach.endswith("dollars")
    assert ops[0].op is Op.SUPERSEDE


async def test_a_cluster_without_a_lesson_is_kept_and_gives_no_note(store: Store) -> None:
    notebook = plain(store)
    assert await notebook.propose([episode(1, LOGIN)]) == ()
    assert [reflection.parsed for reflection in notebook.kept] == [False]


@pytest.mark.parametrize("nothing", ["None", "N/A", "nothing."])
async def test_words_for_nothing_stand_in_no_note(nothing: str, store: Store) -> None:
    lessons = tuple(Insight(content=text) for text in (nothing, nothing, f"{nothing.strip('.')} must be in cents"))
    (op,) = await plain(store).propose([episode(1, UNITS)], insights=lessons, root_cause=nothing)
    store.commit("default", [op], actor="test")
    (note,) = (record.payload for record in store.view("default").records("note"))
    assert (note.correct_approach, note.mistake_summary) == (lessons[-1].content, f"check: {UNITS}")
    assert note.subject == lessons[-1].content


async def test_several_curators_propose_in_order_and_tags_count_once(store: Store) -> None:
    notebook = plain(store)
    trajectory = episode(1, UNITS)
    store.add_trajectory(trajectory)
    both = SeveralCurators([DirectCurator(), notebook.curator])
    read = Reflection(trajectory_id="t1", task_id="task-1", insights=(Insight(content=CENTS),), author="test")
    ops = await both.curate([read], store.view("default"))
    assert [(op.op, op.kind) for op in ops] == [(Op.ADD, "bullet"), (Op.ADD, "note")]
    store.commit("default", ops, actor="test")
    record = store.view("default").records("bullet")[0]
    tagged = read.model_copy(update={"tags": {record.id: "harmful"}, "insights": ()})
    again = await both.curate([tagged], store.view("default"))
    assert [op.op for op in again] == [Op.TAG]
    assert both.name.startswith("direct+notebook:")
