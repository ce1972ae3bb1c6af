"""One suite for every Curator.

C1  a new lesson becomes an ADD with its provenance
C2  a known lesson adds nothing: it speaks for the bullet (TAG helpful)
C3  tags of the reflections come first, and only for records of the view
C4  the same reflections give the same ops, with the same op ids
C5  the view is left as it was; every op passes validation
C6  equal lessons of a batch count once, with all their origins
C7  an unparsed reflection gives no op
C8  a lesson whose answer cannot be parsed, or is refused, is kept as a raw reflection (curators that ask a model)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from memory.records import Insight, Op, Record, Reflection, Trust
from playbooks.curator import DirectCurator, ModelCurator
from playbooks.delta_checks import validate
from playbooks.kinds.bullet import Bullet
from playbooks.protocols import Curator
from playbooks.view import RecordView
from policies.errors import PolicyRefused
from policies.protocols import Message, Profile, SamplingParams
from policies.scripted import ScriptedPolicy

KNOWN = "payments.send: amount must be cents"
NEW = "mail.send: priority must be low"


def answer(messages: Sequence[Message], params: SamplingParams) -> str:
    """Answer as a model would: what is in the rules is known, what contradicts one edits it, the rest is new."""
    text = messages[0].content
    if text.startswith("curate\n"):
        rules = dict(re.findall(r"^\[(\d+)\] (.*)$", text, re.MULTILINE))
        lesson = text.rpartition("lesson: ")[2]
        known = next((int(number) for number, rule in rules.items() if rule == lesson), None)
        return json.dumps({"op": "NONE", "target": known} if known else {"op": "ADD"})
    rules = dict(re.findall(r"^\[([a-z]+-\d+)\] (.*)$", text, re.MULTILINE))
    operations = []
    for number, lesson in re.findall(r"^(\d+)\. \([^)]*\) (.*)$", text, re.MULTILINE):
        known = next((label for label, rule in rules.items() if rule == lesson), None)
        decided = (
            {"type": "NONE", "target": f"[{known}]"} if known else {"type": "add", "section": "vc", "content": lesson}
        )
        operations.append({"lesson": int(number), **decided})
    return json.dumps({"reasoning": "r", "operations": operations})


def model(profile: Profile, script: Any = answer, **options: Any) -> ModelCurator:
    return ModelCurator(ScriptedPolicy(script, profile=profile), trust=Trust.VERIFIED, **options)


MAKERS: dict[str, Callable[[], Curator]] = {
    "direct": lambda: DirectCurator(trust=Trust.VERIFIED),
    "model-full": lambda: model("full"),
    "model-compact": lambda: model("compact"),
}


@pytest.fixture(params=MAKERS)
def curator(request: pytest.FixtureRequest) -> Curator:
    return MAKERS[request.param]()


@pytest.fixture
def view() -> RecordView:
    texts = (KNOWN, "Check the date twice.")
    return RecordView(
        Record(id=f"r{n}", kind="bullet", number=n, slug="shr", payload=Bullet(content=text))
        for n, text in enumerate(texts, 1)
    )


def reflection(*lessons: str, n: int = 1, **fields: Any) -> Reflection:
    insights = tuple(Insight(content=text, section="shr", cue="mail.send priority", action="low") for text in lessons)
    return Reflection(trajectory_id=f"trajectory-{n}", task_id=f"task-{n}", insights=insights, author="test", **fields)


async def test_c1_c5_a_new_lesson_is_added(curator: Curator, view: RecordView) -> None:
    before = view.records()
    (op,) = await curator.curate([reflection(NEW)], view)
    assert op.op is Op.ADD
    bullet = Bullet.model_validate(op.payload)
    assert (bullet.content, bullet.cue, bullet.action) == (NEW, "mail.send priority", "low")
    assert (op.provenance.trust, op.provenance.task_ids) == (Trust.VERIFIED, ("task-1",))
    assert validate([op], view).rejected == {}
    assert view.records() == before


async def test_c2_a_known_lesson_speaks_for_its_bullet(curator: Curator, view: RecordView) -> None:
    (op,) = await curator.curate([reflection(KNOWN)], view)
    assert (op.op, op.target_id) == (Op.TAG, "r1")
    assert op.usage is not None
    assert op.usage.helpful == 1
    assert await curator.curate([reflection(KNOWN, tags={"r1": "harmful"})], view) != ()


async def test_c2_a_lesson_does_not_speak_for_what_it_calls_harmful(curator: Curator, view: RecordView) -> None:
    ops = await curator.curate([reflection(KNOWN, tags={"r1": "harmful"})], view)
    assert [(op.op, op.usage.harmful if op.usage else 0) for op in ops] == [(Op.TAG, 1)]


async def test_c3_tags_come_first_and_only_for_known_records(curator: Curator, view: RecordView) -> None:
    ops = await curator.curate([reflection(NEW, tags={"r2": "harmful", "r1": "helpful", "gone": "helpful"})], view)
    assert [(op.op, op.target_id) for op in ops] == [(Op.TAG, "r1"), (Op.TAG, "r2"), (Op.ADD, None)]


async def test_c4_curating_twice_proposes_the_same_ops(curator: Curator, view: RecordView) -> None:
    batch = [reflection(NEW, KNOWN, tags={"r2": "helpful"})]
    first, second = [await curator.curate(batch, view) for _ in range(2)]
    assert first == second
    assert len({op.op_id for op in first}) == len(first) == 3
    other = await curator.curate([reflection(NEW, n=2)], view)
    assert other[0].op_id not in {op.op_id for op in first}


async def test_c6_equal_lessons_count_once_with_all_their_origins(curator: Curator, view: RecordView) -> None:
    (op,) = await curator.curate([reflection(NEW), reflection(f" {NEW}. ", n=2), reflection(n=3)], view)
    assert op.provenance.task_ids == ("task-1", "task-2")
    assert op.provenance.trajectory_ids == ("trajectory-1", "trajectory-2")


async def test_c7_nothing_comes_of_nothing(curator: Curator, view: RecordView) -> None:
    assert await curator.curate([], view) == ()
    assert await curator.curate([reflection(), reflection(NEW, parsed=False), reflection("  ")], view) == ()


@pytest.mark.parametrize("profile", ["full", "compact"])
async def test_c8_what_cannot_be_parsed_is_kept(profile: Profile, view: RecordView) -> None:
    kept: list[Reflection] = []
    curator = model(profile, ["no idea", "still none"], keep=kept.append)
    assert await curator.curate([reflection(NEW)], view) == ()
    (raw,) = kept
    assert not raw.parsed
    assert raw.insights[0].content == NEW
    assert "no idea" in raw.raw
    assert "still none" in raw.raw
    assert (raw.trajectory_id, raw.task_id, raw.author) == ("trajectory-1", "task-1", curator.name)


@pytest.mark.parametrize("profile", ["full", "compact"])
async def test_c8_what_is_refused_is_kept(profile: Profile, view: RecordView) -> None:
    kept: list[Reflection] = []
    curator = model(profile, [PolicyRefused("2,141 tokens are too many")], keep=kept.append)
    assert await curator.curate([reflection(NEW)], view) == ()
    (raw,) = kept
    assert (raw.parsed, raw.insights[0].content) == (False, NEW)
    assert raw.raw == "refused: 2,141 tokens are too many"


async def test_a_rule_that_says_the_opposite_is_not_the_same(view: RecordView) -> None:
    curator = model("compact", ['{"op": "NONE", "target": 1}'])
    (op,) = await curator.curate([reflection("payments.send: amount must be dollars")], view)
    assert (op.op, op.target_id) == (Op.EDIT, "r1")


async def test_a_contradiction_replaces_the_bullet_without_a_model(view: RecordView) -> None:
    (op,) = await DirectCurator().curate([reflection("payments.send: amount must be dollars")], view)
    assert (op.op, op.target_id, op.base_version) == (Op.EDIT, "r1", 1)


@pytest.mark.parametrize(
    ("said", "ops"),
    [
        ('{"op": "EDIT", "target": 1}', [(Op.EDIT, "r1")]),
        ('{"op": "NONE", "target": 2}', [(Op.TAG, "r2")]),
        ('{"op": "EDIT", "target": 99}', [(Op.ADD, None)]),
        ('{"op": "NONE"}', [(Op.ADD, None)]),
    ],
)
async def test_compact_decisions(said: str, ops: list[Any], view: RecordView) -> None:
    got = await model("compact", [said]).curate([reflection(NEW)], view)
    assert [(op.op, op.target_id) for op in got] == ops
    if ops[0][0] is Op.EDIT:
        assert Bullet.model_validate(got[0].payload).content == NEW


@pytest.mark.parametrize(
    ("operation", "ops"),
    [
        (
            {"type": "EDIT", "target": "[SHR-00001]", "content": "[shr-00001] better words"},
            [(Op.EDIT, "r1", "better words")],
        ),
        ({"type": "UPDATE", "bullet_id": "shr-1", "content": "better words"}, [(Op.EDIT, "r1", "better words")]),
        ({"type": "MERGE", "targets": ["1", "2"], "content": "both"}, [(Op.MERGE, None, "both")]),
        ({"type": "MERGE", "targets": ["1", "77"], "content": "both"}, [(Op.EDIT, "r1", "both")]),
        ({"type": "REMOVE", "target": "2"}, [(Op.REMOVE, "r2", None)]),
        ({"type": "ADD", "section": "no such section", "content": "words"}, [(Op.ADD, None, "words")]),
        ({"type": "REMOVE", "target": "77"}, [(Op.ADD, None, NEW)]),
        ({"type": "CREATE_META", "content": "x"}, [(Op.ADD, None, NEW)]),
        ({"type": "NONE", "target": 2, "lesson": 5}, [(Op.ADD, None, NEW)]),
    ],
)
async def test_full_operations_are_taken_one_by_one(operation: Any, ops: list[Any], view: RecordView) -> None:
    said = json.dumps({"operations": [{"lesson": 1, **operation}]})
    got = await model("full", [said]).curate([reflection(NEW)], view)
    assert [(op.op, op.target_id, op.payload and op.payload["content"]) for op in got] == ops
    assert validate(got, view).rejected == {}
