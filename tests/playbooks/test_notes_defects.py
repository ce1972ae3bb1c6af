"""The known defects of the paper's code (memory-and-gates 1.9), each mended and held here, as far as notes go.

D1  survivorship: what was not answered or not judged stays in the cohort, in a list of its own
D2  a batch's notes do not stand or fall together: each cluster has a note, an op and an origin of its own
D3  a judge that errs is counted as missing: never a tie, never a success, never silent
D4  lists are matched by id, never by place; an empty retrieval or an empty notebook changes nothing
D5  the merged note supersedes its parents: duplicates do not pile up and the newer note is found
D6  one unusable answer does not lose the batch
"""

from __future__ import annotations

import json
from textwrap import indent
from typing import Any

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.records import DeltaOp, Op, RecallQuery, Reflection, Status, Step, Trust, UsageCounts
from memory.store import Store
from playbooks.delta_checks import validate
from playbooks.methods.shown_episode import steps_of
from playbooks.notebook.failure_judge import audit, by_outcome, find_failures, judge_messages
from playbooks.notebook.note_merge import group
from playbooks.render import render
from policies.scripted import ScriptedPolicy
from tests.playbooks.conftest import PARTS
from tests.playbooks.notebooks import LOGIN, UNITS, Notebook, about, episode, question, role, writer


async def test_d1_the_whole_cohort_is_enrolled_and_missing_is_failure(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy(writer))
    cohort = [episode(1), episode(2, UNITS), episode(3, graded=False), episode(4, LOGIN, graded=False)]
    await notebook.learn(cohort)
    (counted,) = notebook.audits
    assert (counted.passed, counted.failed, counted.missing) == (("t1",), ("t2",), ("t3", "t4"))
    assert [note.payload.failure_ids for note in notebook.notes()] == [("t2",)], "nobody said that t3 or t4 was wrong"


async def test_d1_an_episode_that_is_not_in_the_journal_is_counted(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy(writer))
    assert await notebook.curator.curate([Reflection(trajectory_id="t9", task_id="x")], store.view("default")) == ()
    assert notebook.audits[0].missing == ("t9",)
    assert notebook.audits[0].passed == ()


async def test_d2_each_cluster_has_a_note_an_op_and_an_origin_of_its_own(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy(writer))
    ops = await notebook.propose([episode(1, UNITS), episode(2, LOGIN), episode(3, UNITS), episode(4)])
    assert [(op.op, op.provenance.trajectory_ids, op.provenance.task_ids) for op in ops] == [
        (Op.ADD, ("t1", "t3"), ("task-1", "task-3")),
        (Op.ADD, ("t2",), ("task-2",)),
    ]
    assert len({op.op_id for op in ops}) == 2
    assert {op.provenance.trust for op in ops} == {Trust.VERIFIED}
    one_alone = store.commit("default", ops[1:], actor="gate")
    assert one_alone.refused == ()
    assert [note.payload.subject for note in notebook.notes()] == [LOGIN]


@pytest.mark.parametrize("said", ["a draw", "", '{"verdict": "tie"}', '{"reason": "unsure", "verdict": null}', "[0.5]"])
async def test_d3_a_judge_that_errs_is_missing_not_a_tie(said: str, store: Store) -> None:
    def judge(messages: Any, params: Any) -> str:
        return said if "thing 2" in question(messages) else writer(messages, params)

    notebook = Notebook(store, ScriptedPolicy(judge), label_free=True)
    await notebook.learn([episode(1, UNITS), episode(2), episode(3)])
    (counted,) = notebook.audits
    assert (counted.passed, counted.failed, counted.missing) == (("t3",), ("t1",), ("t2",))
    kept = [("t2", False, True)] if said else []
    assert [(raw.trajectory_id, raw.parsed, said in raw.raw) for raw in notebook.kept] == kept


async def test_d3_a_judge_that_always_errs_is_seen(store: Store) -> None:
    found = await find_failures([episode(1), episode(2, UNITS)], ScriptedPolicy(lambda *_: "import json"))
    counted = audit(found, "broken")
    assert (counted.passed, counted.failed, counted.missing) == ((), (), ("t1", "t2"))


async def test_d3_a_refused_judgement_is_missing_and_the_others_go_on() -> None:
    found = await find_failures([episode(1), episode(2)], ScriptedPolicy(['{"verdict": "Correct"}']))
    assert [(f.failed, f.missing) for f in found] == [(False, False), (True, True)]
    assert found[1].raw.startswith("refused: ")


async def test_d3_the_judge_never_sees_the_grade() -> None:
    policy = ScriptedPolicy(lambda *_: '{"verdict": "incorrect"}')
    secret = episode(1, UNITS).model_copy(update={"steps": episode(1).steps})
    await find_failures([secret], policy)
    assert UNITS not in policy.seen[0][-1].content
    assert by_outcome(secret).reason == f"check: {UNITS}"


@pytest.mark.parametrize(
    ("observation", "answer"),
    [("half done", "half done\nE7"), ("refused: E7", "refused: E7"), ("", "E7")],
)
def test_d3_the_judge_sees_an_error_that_the_observation_does_not_hold(observation: str, answer: str) -> None:
    step = Step(index=0, action="f()", observation=observation, error="E7")
    failed = episode(1).model_copy(update={"steps": (step,)})
    assert judge_messages(failed, "compact")[-1].content.endswith(f">> f()\n<< {answer}")
    assert [shown["answer"] for shown in steps_of(failed)] == [indent(answer, "  ")]


async def test_d4_findings_and_failures_belong_together_by_id(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy(writer))
    await notebook.learn([episode(1), episode(2, LOGIN), episode(3, graded=False), episode(4, UNITS)])
    assert {note.payload.failure_ids: note.payload.subject for note in notebook.notes()} == {
        ("t2",): LOGIN,
        ("t4",): UNITS,
    }


async def test_d4_nothing_comes_of_nothing(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy(()))
    assert await notebook.propose([]) == ()
    assert await notebook.propose([episode(1), episode(2)]) == ()
    assert group([], store.view("default"), HashingEmbedder()) == ()
    assert store.recall(RecallQuery(text="anything")) == ()
    assert render([], "full") == ""
    assert (store.version("default"), notebook.notes()) == (0, [])


async def test_d5_a_merge_always_supersedes_and_the_newer_note_is_found(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy(writer))
    for number in range(1, 6):
        await notebook.learn([episode(number, UNITS)])
        (live,) = notebook.notes()
        assert live.payload.failure_ids == tuple(f"t{n}" for n in range(1, number + 1))
        (found,) = store.recall(RecallQuery(text=f"payments {UNITS}"))
        assert found.record.id == live.id
    everything = store.records("default")
    assert [record.status for record in everything] == [*[Status.SUPERSEDED] * 4, Status.PROVISIONAL]
    assert [record.supersedes for record in everything[1:]] == [(record.id,) for record in everything[:-1]]
    assert everything[-1].provenance.task_ids == ("task-5", "task-4", "task-3", "task-2", "task-1")


@pytest.mark.parametrize("parents", [1, 2])
async def test_d5_what_the_parents_earned_goes_on(parents: int, store: Store, note: Any) -> None:
    earned = UsageCounts(helpful=3, harmful=1)
    ops = [
        DeltaOp(op=Op.ADD, kind="note", payload=note(n, subject=UNITS).payload.model_dump(), usage=earned)
        for n in range(parents)
    ]
    store.commit("default", ops, actor="test")
    notebook = Notebook(store, ScriptedPolicy(writer))
    await notebook.learn([episode(1, UNITS)])
    (live,) = notebook.notes()
    assert (live.usage.helpful, live.usage.harmful) == (3 * parents, parents)


async def test_d5_several_parents_become_one_by_merge(store: Store, note: Any) -> None:
    twins = [
        DeltaOp(op=Op.ADD, kind="note", payload=note(n, subject=UNITS, failure_ids=(f"old{n}",)).payload.model_dump())
        for n in (1, 2)
    ]
    store.commit("default", twins, actor="test")
    notebook = Notebook(store, ScriptedPolicy(writer))
    ops = await notebook.propose([episode(1, UNITS)])
    assert [(op.op, len(op.parent_ids)) for op in ops] == [(Op.MERGE, 2)]
    assert validate(ops, store.view("default")).rejected == {}
    store.commit("default", ops, actor="test")
    (live,) = notebook.notes()
    assert live.payload.failure_ids == ("old1", "old2", "t1")
    assert len(live.supersedes) == 2


async def test_d5_two_clusters_that_get_the_same_subject_become_one_note(store: Store) -> None:
    same = ScriptedPolicy(lambda *_: json.dumps(PARTS))
    notebook = Notebook(store, same)
    (op,) = await notebook.propose([episode(1, UNITS), episode(2, LOGIN)])
    assert (op.op, op.provenance.trajectory_ids) == (Op.ADD, ("t1", "t2"))
    assert op.payload["failure_ids"] == ["t1", "t2"]


async def test_d5_an_unusable_merge_still_leaves_no_duplicates(store: Store) -> None:
    def no_merge(messages: Any, params: Any) -> str:
        return "I would rather not." if role(messages) == "merge" else writer(messages, params)

    notebook = Notebook(store, ScriptedPolicy(no_merge))
    await notebook.learn([episode(1, UNITS)])
    await notebook.learn([episode(2, UNITS)])
    (live,) = notebook.notes()
    assert live.payload.failure_ids == ("t1", "t2")
    assert [(raw.trajectory_id, raw.parsed, raw.author) for raw in notebook.kept] == [
        ("t2", False, f"{notebook.curator.name}:merge")
    ]


async def test_d5_what_the_operator_pinned_is_left_alone(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy(writer))
    await notebook.learn([episode(1, UNITS)])
    (live,) = notebook.notes()
    pin = DeltaOp(op=Op.RESTORE, kind="note", target_id=live.id, status=Status.ACTIVE, pinned=True)
    assert store.commit("default", [pin], actor="operator").refused == ()
    (op,) = await notebook.propose([episode(2, UNITS)])
    assert op.op is Op.ADD


async def test_d6_one_unusable_answer_does_not_lose_the_batch(store: Store) -> None:
    def half(messages: Any, params: Any) -> str:
        return "no idea" if about(messages) == LOGIN else writer(messages, params)

    notebook = Notebook(store, ScriptedPolicy(half))
    await notebook.learn([episode(1, UNITS), episode(2, LOGIN), episode(3, LOGIN)])
    assert [note.payload.subject for note in notebook.notes()] == [UNITS]
    assert [(raw.trajectory_id, raw.parsed) for raw in notebook.kept] == [("t2", False), ("t3", False)]
    assert all("no idea" in raw.raw and raw.insights[0].content == f"check: {LOGIN}\n{LOGIN}" for raw in notebook.kept)
