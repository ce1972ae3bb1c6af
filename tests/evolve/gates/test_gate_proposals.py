"""The review queue: what waits, in which order, in which words, and what became of a change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.gates.gate_events import VERDICT
from evolve.gates.quarantine import restoring
from evolve.gates.review_queue import accept, defer, edited, find, proposals, reject, says, standing, submit
from evolve.loop.assembly import open_store
from memory.errors import BadInput, NotFound
from memory.records import DeltaOp, Event, Op, Status, Verdict
from memory.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(Config.model_validate({"root": tmp_path, "memory": {"index": "exact"}})) as made:
        yield made


def add(text: str, op_id: str, **fields: Any) -> DeltaOp:
    return DeltaOp.model_validate({"op": Op.ADD, "op_id": op_id, "payload": {"content": text}} | fields)


def waiting(store: Store) -> list[str]:
    return [each.op.op_id for each in proposals(store)]


def test_what_says_the_same_waits_once(store: Store) -> None:
    first = add("Pay in  cents.", "a")
    assert submit(store, "default", "run", [first, add("Sign it.", "b")]) == 2
    assert submit(store, "default", "run", [add("Pay in cents.", "c"), first]) == 1
    assert submit(store, "default", "run", ()) == 0
    assert waiting(store) == ["a", "b"]
    again = find(store, "c")
    assert (again.decision, again.reason) == ("repeated", f"number {find(store, 'a').seq} says the same and waits")
    others = [
        add("Pay in cents.", "d", op=Op.EDIT, target_id="r1"),
        add("Pay in cents.", "e", parent_ids=("r1", "r2"), op=Op.MERGE),
        DeltaOp(op=Op.REMOVE, op_id="f", target_id="r1"),
        DeltaOp(op=Op.REMOVE, op_id="g", target_id="r1"),
    ]
    assert submit(store, "default", "run", others) == 4
    assert submit(store, "elsewhere", "run", [add("Pay in cents.", "h")]) == 1
    assert submit(store, "default", "run", [add("Pay in cents.", "i", parent_ids=("r2", "r1"), op=Op.MERGE)]) == 0


def test_what_was_turned_down_is_not_asked_again_and_what_was_accepted_may_be(store: Store) -> None:
    submit(store, "default", "run", [add("Pay in cents.", "a"), add("Sign it.", "b")])
    turned_down = reject(store, "a", actor="ann", reason="no")
    assert (turned_down.decision, turned_down.reason) == ("rejected", "no")
    assert accept(store, "b", actor="ann").applied
    assert submit(store, "default", "run", [add("Pay in cents.", "c"), add("Sign it.", "d")]) == 1
    assert find(store, "c").reason == f"number {turned_down.seq} says the same and was rejected"
    assert waiting(store) == ["d"]
    decisions = {each.op.op_id: each.decision for each in proposals(store, decided=True)}
    assert decisions == {"a": "rejected", "b": "accepted", "c": "repeated", "d": ""}
    assert submit(store, "default", "run", [add("Pay in cents.", "e")]) == 0, "a repeated one is not what it repeats"
    assert find(store, "e").reason == find(store, "c").reason


def test_a_change_of_what_has_moved_on_gives_way_to_the_same_of_what_is_there_now(store: Store) -> None:
    store.commit("default", [add("Pay in euros.", "a")], actor="test")

    def edit(text: str, op_id: str) -> DeltaOp:
        (record,) = store.records("default")
        return add(text, op_id, op=Op.EDIT, target_id=record.id, base_version=record.version)

    submit(store, "default", "run", [edit("Pay in cents.", "b"), edit("Pay in whole cents.", "c")])
    assert accept(store, "b", actor="ann").applied
    assert "stale" in accept(store, "c", actor="ann").refused[0].reason
    assert submit(store, "default", "run", [edit("Pay in whole cents.", "d")]) == 1
    assert waiting(store) == ["d"]
    old, new = find(store, "c"), find(store, "d")
    assert (old.decision, old.reason) == ("repeated", f"number {new.seq} says the same of what is there now")
    assert submit(store, "default", "run", [edit("Pay in whole cents.", "e")]) == 0
    assert accept(store, "d", actor="ann").applied
    assert [record.payload.text() for record in store.records("default")] == ["Pay in whole cents."]


def test_what_is_put_off_comes_after_all_others(store: Store) -> None:
    submit(store, "default", "run", [add(f"Rule {key}.", key) for key in "abc"])
    assert defer(store, "a", actor="ann").deferred == 1
    assert waiting(store) == ["b", "c", "a"]
    assert defer(store, "a", actor="ann").deferred == 2
    defer(store, "b", actor="ann")
    assert waiting(store) == ["c", "b", "a"]
    assert proposals(store, "elsewhere") == ()
    for name in ("a", str(find(store, "a").seq)):
        assert find(store, name).op.op_id == "a"
    reject(store, "a", actor="ann")
    for act in (reject, defer, accept):
        with pytest.raises(BadInput, match="rejected already"):
            act(store, "a", actor="ann")
        with pytest.raises(NotFound, match="no proposal 'z'"):
            act(store, "z", actor="ann")


def test_the_operators_word_stands_behind_what_is_accepted(store: Store) -> None:
    submit(store, "default", "run", [add("Rule a.", "a"), add("Rule b.", "b")])
    accept(store, "a", actor="ann")
    accept(store, "b", actor="ann", payload={"content": "Rule c."})
    records = store.records("default")
    assert [record.payload.text() for record in records] == ["Rule a.", "Rule c."]
    assert {record.provenance.trust.value for record in records} == {"operator"}
    events = store.events(type="review.accepted")
    assert [(event.data["actor"], event.data["edited"]) for event in events] == [("ann", False), ("ann", True)]


def test_other_words_for_an_imported_text_are_what_is_shown(store: Store) -> None:
    (text,) = store.commit("default", [add("Send it all.", "x", status=Status.CANDIDATE)], actor="ann").results
    record = store.get(text.record_id or "")
    submit(store, "default", "run", [restoring(record, "shown")])
    assert accept(store, "shown", actor="ann", payload={"content": "Ask first."}).applied
    assert [(each.payload.text(), each.status) for each in store.view("default").records()] == [
        ("Ask first.", Status.PROVISIONAL)
    ]
    assert store.get(record.id).status is Status.SUPERSEDED


def test_a_change_is_shown_in_its_words() -> None:
    assert says(add("Pay in cents.", "a")) == "Pay in cents."
    assert says(DeltaOp(op=Op.REMOVE, op_id="a", target_id="r1")) == ""
    odd = {"odd": "Zürich"}
    assert says(DeltaOp(op=Op.ADD, op_id="a", payload=odd)) == json.dumps(odd, indent=2, ensure_ascii=False)


def test_a_change_is_edited_in_its_words_or_as_an_object() -> None:
    assert edited(add("Pay.", "a"), "Pay in cents.") == {"content": "Pay in cents."}
    skill = DeltaOp(op=Op.ADD, op_id="a", kind="skill", payload={"source": "x", "summary": "y"})
    assert edited(skill, "{}") == {"source": "{}", "summary": "y"}
    with pytest.raises(BadInput, match=r"a change \(REMOVE\) that has none"):
        edited(DeltaOp(op=Op.REMOVE, op_id="a", target_id="r1"), "Pay.")
    note = DeltaOp(op=Op.ADD, op_id="a", kind="note", payload={"subject": "x", "more": 1})
    assert edited(note, '{"subject": "z"}') == {"subject": "z", "more": 1}
    for text in ("", "  \n"):
        with pytest.raises(BadInput, match="empty text"):
            edited(note, text)
    for text in ("Pay.", "7"):
        with pytest.raises(BadInput, match=f"got '{text}'; expected the fields of the note to change as a JSON object"):
            edited(note, text)


def test_what_became_of_a_change_is_told_by_where_it_is(store: Store) -> None:
    used, held, queued = add("Rule a.", "a"), add("Rule b.", "b", status=Status.CANDIDATE), add("Rule c.", "c")
    store.commit("default", [used, held], actor="test")
    submit(store, "default", "run", [add("Rule z.", "z"), queued])
    verdict = Verdict(gate="static", accepted=("a", "b", "c"), rejected={"d": "too long"}, deferred={"e": "too dear"})
    other = Verdict(gate="static", accepted=(), rejected={"f": "elsewhere"})
    for subject, each in (("batch", verdict), ("another", other)):
        event = Event(
            type=VERDICT, namespace="default", run_id="run", subject=subject, data=each.model_dump(mode="json")
        )
        store.append(event)
    gone = DeltaOp(op=Op.REMOVE, op_id="g", target_id="nobody")
    store.commit("default", [gone], actor="test")
    found = {
        op.op_id: standing(store, op, "batch") for op in (used, held, queued, *(add("x", key) for key in "def"), gone)
    }
    assert {key: each.answer for key, each in found.items()} == {
        "a": "in use",
        "b": "quarantined",
        "c": "in review",
        "d": "refused",
        "e": "deferred",
        "f": "known",
        "g": "refused",
    }
    labels = [record.label for record in store.records("default")]
    assert [found["a"].name, found["b"].name] == labels
    assert found["c"].name == str(find(store, "c").seq)
    assert (found["d"].reason, found["e"].reason) == ("too long", "too dear")
    assert "nobody" in found["g"].reason
