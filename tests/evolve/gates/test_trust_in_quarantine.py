"""Where the line of a quotation runs, and what is kept out of prompts: the edges of trust and of quarantine."""

from __future__ import annotations

import pytest

from evolve.episode.trust import payload_of, runs, text_of, texts_of, trust_of
from evolve.gates.quarantine import is_held, measured_in, restoring, unheld, withhold
from memory.records import DeltaOp, Op, Outcome, Provenance, Record, Status, Step, Task, Trajectory, Trust, Verdict
from playbooks.kinds.bullet import Bullet
from playbooks.kinds.exemplar import Exemplar


def add(content: str, trust: Trust = Trust.SELF_JUDGED, status: Status = Status.PROVISIONAL) -> DeltaOp:
    provenance = Provenance(trust=trust)
    return DeltaOp(op=Op.ADD, op_id=content, payload={"content": content}, provenance=provenance, status=status)


def episode(observation: str, error: str | None = None, instruction: str = "Do it.") -> Trajectory:
    step = Step(index=0, action="a", observation=observation, error=error)
    task = Task(id="t1", instruction=instruction)
    return Trajectory(task=task, steps=(step,), outcome=Outcome(success=True, reward=1.0))


@pytest.mark.parametrize(
    ("printed", "quoted"),
    [
        ("one two three four", True),  # one run of two
        ("one two three", False),
        ("nothing of it stands here", False),
        ("ONE, two: three; four!", True),
        ("two three four five", True),
    ],
)
def test_a_text_is_a_quotation_from_half_of_its_runs_of_four_words_on(printed: str, quoted: bool) -> None:
    trust = trust_of(add("one two three four five"), [episode(printed)], graded=True)
    assert (trust is Trust.QUOTED) is quoted
    assert trust_of(add("one two three four five six"), [episode(printed)], graded=True) is not Trust.QUOTED


def test_runs_are_four_words_each() -> None:
    assert list(runs("One two three, four five")) == [
        ("one", "two", "three", "four"),
        ("two", "three", "four", "five"),
    ]
    assert list(runs("one two three")) == []


def test_what_a_task_said_is_quoted_too_and_an_error_is_not() -> None:
    said = "always close the left door"
    assert trust_of(add(said), [episode("", instruction=said)], graded=True) is Trust.QUOTED
    assert trust_of(add(said), [episode(f"error: {said}!", error=said)], graded=True) is Trust.VERIFIED
    assert trust_of(add(said), [episode(f"{said} {said}", error="no such door at all")], graded=True) is Trust.QUOTED
    assert trust_of(add(said), [], graded=True, tainted=True) is Trust.TAINTED


def exemplar(reply: str) -> DeltaOp:
    turn = {"said": reply, "observed": "ok"}
    return DeltaOp(op=Op.ADD, kind="exemplar", payload={"task": "pay the bill", "turns": [turn]})


def test_each_text_of_an_exemplar_is_read_by_itself_without_marks_of_comments() -> None:
    op = exemplar("# input\n  ## say the magic word now\npay()")
    payload = payload_of(op)
    assert isinstance(payload, Exemplar)
    assert all("#" not in text for text in texts_of(op))
    assert len(texts_of(op)) == len([text for text in payload.texts() if text]) > 1
    assert text_of(op) == payload.text()
    note = "please say the magic word now and then"
    assert trust_of(exemplar(note), [episode(f"mail: {note}")], graded=True) is Trust.QUOTED
    assert trust_of(exemplar("pay()"), [episode(f"mail: {note}")], graded=True) is Trust.VERIFIED


def test_what_is_none_of_its_kind_has_no_text() -> None:
    for op in (
        DeltaOp(op=Op.REMOVE, target_id="r1"),
        DeltaOp(op=Op.ADD, kind="bullet", payload={"content": 7}),
        DeltaOp(op=Op.ADD, kind="poem", payload={"content": "a"}),
    ):
        assert (payload_of(op), text_of(op), texts_of(op)) == (None, "", ())
        assert trust_of(op, [episode("nothing")], graded=True) is Trust.VERIFIED


def record(content: str, status: Status) -> Record[Bullet]:
    return Record[Bullet](kind="bullet", number=1, status=status, payload=Bullet(content=content))


def test_a_text_waits_in_quarantine_once() -> None:
    held = [add(text, status=Status.CANDIDATE) for text in ("one", "two", "one ", "three")]
    assert [op.op_id for op in unheld(held, [])] == ["one", "two", "three"]
    known = [record("two", Status.CANDIDATE), record("three", Status.PROVISIONAL)]
    assert [op.op_id for op in unheld(held, known)] == ["one", "three"]
    shown = [add("two"), DeltaOp(op=Op.REMOVE, op_id="gone", target_id="r1"), add("two")]
    assert unheld(shown, known) == tuple(shown), "what is shown at once is no matter of quarantine"


def test_only_a_new_text_that_waits_is_held() -> None:
    assert is_held(add("one", status=Status.CANDIDATE))
    assert not is_held(add("one"))
    assert not is_held(DeltaOp(op=Op.RESTORE, target_id="r1", status=Status.CANDIDATE))


def test_a_quarantined_text_is_proposed_as_it_reads_now() -> None:
    held = record("one", Status.CANDIDATE).model_copy(update={"version": 3})
    op = restoring(held, "op-1")
    assert (op.op, op.op_id, op.kind, op.target_id, op.base_version) == (Op.RESTORE, "op-1", "bullet", held.id, 3)
    assert (op.payload, op.provenance, op.reason) == (
        held.payload.model_dump(mode="json"),
        held.provenance,
        "passed the gates",
    )


def test_a_pin_is_lost_in_quarantine_and_earlier_measurements_count() -> None:
    pinned = add("one", Trust.QUOTED).model_copy(update={"pinned": True})
    (kept,), review = withhold([pinned], [], Trust.VERIFIED)
    assert (kept.status, kept.pinned, review) == (Status.CANDIDATE, False, ())
    assert withhold([pinned], [], Trust.VERIFIED, before=["one"]) == ((pinned,), ())


def test_what_was_let_pass_unmeasured_was_not_measured() -> None:
    trial = {"trial": {}, "ops": ["one", "two"]}
    verdict = Verdict(gate="held_out", accepted=("one", "three"), evidence={"rounds": [trial]})
    assert measured_in(verdict) == {"one"}
    assert measured_in(Verdict(gate="held_out", accepted=("one",), evidence={})) == frozenset()
