"""Which notes are merged: neighbours by subject, at most k for each new note, nobody twice and nobody lost."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.protocols import Vector
from memory.records import Op, Provenance, Usage
from playbooks.kinds.note import TOTAL_WORDS, Note, words
from playbooks.notebook.failure_evidence import Failure
from playbooks.notebook.note_merge import Group, group, joined, merged, op_of
from playbooks.notebook.write import Written
from playbooks.view import RecordView
from policies.scripted import ScriptedPolicy
from tests.playbooks.conftest import PARTS

Make = Callable[..., Any]


class Angles:
    """An embedder whose texts are angles in degrees, so that every cosine is known."""

    model, dim = "angles", 2

    def embed(self, texts: Any) -> Vector:
        turns = np.radians([float(text.split()[0]) for text in texts])
        return np.stack([np.cos(turns), np.sin(turns)], axis=1).astype(np.float32)


def written(number: int, subject: str) -> Written:
    failure = Failure(trajectory_id=f"t{number}", task_id=f"k{number}", instruction="x", attempt=(), complaints=())
    note = Note(**(PARTS | {"subject": subject}), failure_ids=(f"t{number}",))
    return Written(note=note, failures=(failure,), raw="", usage=Usage())


def shape(groups: tuple[Group, ...]) -> list[tuple[list[str], list[int]]]:
    return [([item.failures[0].trajectory_id for item in g.written], [r.number for r in g.parents]) for g in groups]


def test_neighbours_are_those_at_or_above_the_threshold(note: Make) -> None:
    view = RecordView([note(1, subject="0 a"), note(2, subject="40 b"), note(3, subject="90 c")])
    fresh = [written(1, "20 x"), written(2, "91 y"), written(3, "200 z")]
    assert shape(group(fresh, view, Angles(), threshold=0.9)) == [(["t1"], [1, 2]), (["t2"], [3]), (["t3"], [])]
    assert shape(group(fresh, view, Angles(), threshold=0.99)) == [(["t1"], []), (["t2"], [3]), (["t3"], [])]


def test_old_notes_are_not_merged_with_each_other_without_a_new_one(note: Make) -> None:
    view = RecordView([note(1, subject="0 a"), note(2, subject="1 b"), note(3, subject="180 c")])
    assert shape(group([written(1, "181 x")], view, Angles())) == [(["t1"], [3])]


def test_of_many_neighbours_the_nearest_k_are_taken_the_newer_of_equals(note: Make) -> None:
    view = RecordView([note(1, subject="5 a"), note(2, subject="5 b"), note(3, subject="9 c"), note(4, subject="5 d")])
    assert shape(group([written(1, "5 x")], view, Angles(), k=1)) == [(["t1"], [4])]
    assert shape(group([written(1, "5 x")], view, Angles(), k=2)) == [(["t1"], [2, 4])]
    assert shape(group([written(1, "5 x")], view, Angles())) == [(["t1"], [1, 2, 3, 4])]


def test_new_notes_with_one_neighbour_between_them_are_one_group(note: Make) -> None:
    view = RecordView([note(1, subject="20 between")])
    fresh = [written(1, "0 x"), written(2, "40 y"), written(3, "120 z")]
    assert shape(group(fresh, view, Angles())) == [(["t1", "t2"], [1]), (["t3"], [])]


def test_nobody_twice_and_nobody_lost(note: Make) -> None:
    rng = random.Random(5)
    for _ in range(100):
        known = [note(n, subject=f"{rng.randrange(360)} k", pinned=rng.random() < 0.2) for n in range(rng.randrange(9))]
        fresh = [written(n, f"{rng.randrange(360)} f") for n in range(rng.randrange(9))]
        groups = group(fresh, RecordView(known), Angles(), k=rng.randint(1, 4), threshold=rng.uniform(0.5, 1))
        seen = [key for keys, _ in shape(groups) for key in keys]
        parents = [number for _, numbers in shape(groups) for number in numbers]
        assert sorted(seen) == sorted(f"t{n}" for n in range(len(fresh)))
        assert len(parents) == len(set(parents))
        assert not {r.number for r in known if r.pinned} & set(parents)


def test_equal_subjects_are_the_same_for_the_shipped_embedder(note: Make) -> None:
    view = RecordView([note(1, subject="payments, amounts in cents"), note(2, subject="mail, log in first")])
    fresh = [written(1, "Payments: amounts in cents"), written(2, "calendar, dates")]
    assert shape(group(fresh, view, HashingEmbedder())) == [(["t1"], [1]), (["t2"], [])]


@pytest.mark.parametrize(("parents", "op"), [(0, Op.ADD), (1, Op.SUPERSEDE), (3, Op.MERGE)])
async def test_the_op_names_every_parent(parents: int, op: Op, note: Make) -> None:
    records = tuple(note(n, subject=f"s{n}", failure_ids=(f"old{n}",), version=n) for n in range(1, parents + 1))
    members = Group((written(1, "x"), written(2, "y")), records)
    answer = await merged(ScriptedPolicy([json.dumps(PARTS)]), members)
    assert answer.note is not None
    made = op_of(members, answer.note, Provenance())
    assert made.op is op
    assert {made.target_id, *made.parent_ids} - {None} == {record.id for record in records}
    assert made.base_version == (1 if parents == 1 else None)
    assert made.parent_versions == (tuple(range(1, parents + 1)) if parents > 1 else ())
    expected = (*(f"old{n}" for n in range(1, parents + 1)), "t1", "t2")
    assert answer.note.failure_ids == expected
    assert op_of(members, answer.note, Provenance()).op_id == made.op_id


def test_joined_without_a_model_the_newest_speaks_and_the_limits_hold(note: Make) -> None:
    long = tuple(f"{letter} " + "w " * 48 for letter in "abc")
    members = Group(
        (written(1, "new"),),
        tuple(note(n, subject=f"old {n}", corrected_examples=long, anti_patterns=(f"case {n}",)) for n in (1, 2)),
    )
    one = joined(members)
    assert one.subject == "new"
    assert one.anti_patterns == ("the amount is in cents already", "case 2", "case 1")
    assert one.corrected_examples[0] == PARTS["corrected_examples"][0]
    assert sum(words(part) for name in PARTS if name != "subject" for part in one.parts(name)) <= TOTAL_WORDS
