"""The notebook's curator: conformance to the protocol, batch and streaming mode, drafts that are mended or kept raw.

C3  the reflections' tags come first, only for records of the view
C4  curating the same failures twice gives the same ops, with the same op ids, in any process
C5  the view is left as it was; every op passes validation
C7  nothing comes of nothing; an unparsed reflection adds no lesson, but its failure counts
C8  what cannot be parsed is kept raw
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from memory.records import Insight, Op, Trust
from memory.store import Store
from playbooks.delta_checks import validate
from playbooks.kinds.note import LIMITS, TOTAL_WORDS, Note, words
from playbooks.notebook.failure_clusters import cluster_id
from playbooks.notebook.note_drafts import NoteDraft, note_of, shortened
from policies.protocols import Profile
from policies.scripted import ScriptedPolicy
from policies.structured import parse
from tests.playbooks.conftest import PARTS
from tests.playbooks.notebooks import LOGIN, UNITS, Notebook, episode, writer
from tests.playbooks.test_mutated_replies import mutate

Make = Callable[..., Any]
BATCH = [episode(1, UNITS), episode(2, LOGIN), episode(3, UNITS), episode(4)]


@pytest.mark.parametrize("profile", ["full", "compact"])
async def test_c4_c5_the_same_failures_give_the_same_valid_ops(profile: Profile, store: Store) -> None:
    policy = ScriptedPolicy(writer, profile=profile)
    first, second = [await Notebook(store, policy).propose(BATCH) for _ in range(2)]
    assert first == second
    assert [op.payload["subject"] for op in first] == [UNITS, LOGIN]
    assert [op.payload["cluster_id"] for op in first] == [cluster_id(["t1", "t3"]), cluster_id(["t2"])]
    assert validate(first, store.view("default")).rejected == {}
    assert (store.version("default"), store.records("default")) == (0, ())


async def test_c3_tags_come_first_and_only_for_known_records(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy(writer))
    await notebook.learn([episode(1, UNITS)])
    (live,) = notebook.notes()
    ops = await notebook.propose([episode(2, LOGIN)], tags={live.id: "harmful", "gone": "helpful"})
    assert [(op.op, op.kind, op.target_id) for op in ops] == [(Op.TAG, "note", live.id), (Op.ADD, "note", None)]


async def test_c7_an_unparsed_reflection_adds_no_lesson_but_its_failure_counts(store: Store) -> None:
    policy = ScriptedPolicy(writer)
    lesson = (Insight(content="a lesson"),)
    (op,) = await Notebook(store, policy).propose([episode(1, UNITS)], insights=lesson, parsed=False)
    assert op.payload["failure_ids"] == ["t1"]
    assert "a lesson" not in policy.seen[0][-1].content
    await Notebook(store, policy).propose([episode(1, UNITS)], insights=lesson, root_cause="a cause")
    assert "reviewer's lesson: a lesson" in policy.seen[1][-1].content
    assert "found wrong: a cause" in policy.seen[1][-1].content


@pytest.mark.parametrize(("batch", "notes"), [(16, 2), (1, 2)])
async def test_streaming_asks_for_each_failure_and_still_keeps_one_note_a_subject(
    batch: int, notes: int, store: Store
) -> None:
    policy = ScriptedPolicy(writer)
    notebook = Notebook(store, policy, batch=batch)
    await notebook.learn(BATCH)
    assert sorted(note.payload.failure_ids for note in notebook.notes()) == [("t1", "t3"), ("t2",)]
    assert len(notebook.notes()) == notes
    assert policy.calls == (2 if batch == 16 else 4)


async def test_label_free_reads_no_outcome_and_trusts_less(store: Store) -> None:
    policy = ScriptedPolicy(writer)
    notebook = Notebook(store, policy, label_free=True)
    ops = await notebook.propose([episode(1, UNITS), episode(2)])
    assert [(op.provenance.trust, op.provenance.trajectory_ids) for op in ops] == [(Trust.SELF_JUDGED, ("t1",))]
    asked = "".join(messages[-1].content for messages in policy.seen)
    assert "check: " not in asked
    ungraded = Notebook(store, ScriptedPolicy(writer), label_free=True)
    (op,) = await ungraded.propose([episode(5, LOGIN, graded=False)])
    assert op.provenance.trajectory_ids == ("t5",)
    assert ungraded.audits[0].failed == ("t5",)


async def test_many_failures_of_one_cluster_fit_one_prompt(store: Store) -> None:
    policy = ScriptedPolicy(writer)
    await Notebook(store, policy).propose([episode(n, UNITS, instruction="x" * 5000) for n in range(1, 13)])
    (prompt,) = [messages[-1].content for messages in policy.seen]
    assert prompt.count("--- failure ") == 6
    assert "6 more like these are not shown" in prompt
    assert len(prompt) < 12_000


@pytest.mark.parametrize("missing", LIMITS)
async def test_an_answer_without_a_part_is_asked_for_again(missing: str, store: Store) -> None:
    bad = json.dumps({key: value for key, value in PARTS.items() if key != missing})
    notebook = Notebook(store, ScriptedPolicy([bad, json.dumps(PARTS)]))
    await notebook.learn([episode(1, UNITS)])
    assert notebook.notes()[0].payload.parts(missing) == Note(**PARTS).parts(missing)
    assert notebook.kept == []


async def test_c8_empty_anti_patterns_twice_are_kept_raw(store: Store) -> None:
    bad = json.dumps(PARTS | {"anti_patterns": ["none"]})
    notebook = Notebook(store, ScriptedPolicy([bad, bad]))
    assert await notebook.propose([episode(1, UNITS)], insights=(Insight(content="log in"),)) == ()
    (raw,) = notebook.kept
    assert (raw.trajectory_id, raw.task_id, raw.parsed, raw.insights[0].content) == ("t1", "task-1", False, "log in")
    assert raw.raw.count(bad) == 2
    assert raw.usage.calls == 2


async def test_c8_a_refused_prompt_is_kept_and_the_others_go_on(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy([json.dumps(PARTS)]))
    ops = await notebook.propose([episode(1, UNITS), episode(2, LOGIN)])
    assert [op.payload["failure_ids"] for op in ops] == [["t1"]]
    assert [(raw.trajectory_id, raw.raw[:8]) for raw in notebook.kept] == [("t2", "refused:")]


@pytest.mark.parametrize("profile", ["full", "compact"])
async def test_c8_mutated_replies_give_a_valid_note_or_are_kept(profile: Profile, store: Store) -> None:
    rng, lost = random.Random(f"note-{profile}"), 0
    store.add_trajectory(episode(1, UNITS))
    for _ in range(150):
        said = [mutate(json.loads(json.dumps(PARTS)), rng) for _ in range(2)]
        notebook = Notebook(store, ScriptedPolicy(said, profile=profile))
        ops = await notebook.propose([episode(1, UNITS)])
        assert bool(ops) != bool(notebook.kept)
        assert all(text.strip() in raw.raw for raw in notebook.kept for text in said)
        for op in ops:
            Note.model_validate(op.payload)
        lost += bool(notebook.kept)
    assert lost < 75


def test_too_long_parts_are_shortened_at_a_sentence_never_refused() -> None:
    long = " ".join(f"This is sentence {n}." for n in range(60))
    draft = NoteDraft(
        subject=long,
        corrected_examples=tuple(f"{n} {long}" for n in range(5)),
        correct_approach=long,
        mistake_summary=long,
        strategy=long,
        anti_patterns=(long, "short one"),
    )
    note = note_of(draft, ["a", "b", "a"])
    assert note.failure_ids == ("a", "b")
    assert all(part.endswith(".") for name in LIMITS for part in note.parts(name) if part != "short one")
    assert sum(words(part) for name in LIMITS if name != "subject" for part in note.parts(name)) <= TOTAL_WORDS
    assert shortened("one two three four", 2) == "one two"
    assert shortened("None. The amount was wrong.", 4) == "None. The amount was"


@pytest.mark.parametrize(
    "given",
    [
        {"corrected_examples": "just one", "anti_patterns": "when it is late"},
        {"corrected_examples": [{"wrong": "a", "right": "b"}], "strategy": ["Do this.", "Then that."]},
        {"Anti-Patterns": ["late"], "anti_patterns": None},
        {"examples": ["one"], "corrected_examples": None},
    ],
)
def test_a_draft_takes_lists_and_texts_for_each_other(given: dict[str, Any]) -> None:
    fields = {key: value for key, value in (PARTS | given).items() if value is not None}
    draft, error = parse(json.dumps(fields), NoteDraft)
    assert draft is not None, error
    assert note_of(draft, ["t1"]).text()


async def test_what_went_wrong_in_a_success_is_written_about_too(store: Store) -> None:
    notebook = Notebook(store, ScriptedPolicy(writer), lambda t: (UNITS,) if t.id == "t2" else ())
    await notebook.learn([episode(1, ""), episode(2, "")])
    (note,) = notebook.notes()
    assert note.payload.failure_ids == ("t2",)
    assert notebook.audits[0].passed == ("t1", "t2")
