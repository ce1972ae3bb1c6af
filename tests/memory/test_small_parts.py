"""Small parts of the memory floor: vectors at the door, objects by name, items of a store, what a merge inherits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from memory import blobs, kinds
from memory.embeddable import tokenizable
from memory.errors import BadInput, NotFound
from memory.objects import load_object
from memory.records import DeltaOp, Op, Payload, Provenance, RecallQuery, Step, Task, Trajectory, Trust, UsageCounts
from memory.redact import redact_named
from memory.sqlite import fts_words as words
from memory.sqlite.schema import APPLICATION_ID
from memory.store import Store
from memory.stored_item import StoredItem, texts_in
from memory.targets import find_target, inherit, total_usage
from memory.trajectories import Outcome, Usage
from memory.vectors import check_vectors, collection_name, from_blobs, to_blob

Add = Callable[..., DeltaOp]


def test_vectors_come_back_from_their_bytes() -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6.5]], dtype=np.float32)
    back = from_blobs([to_blob(row) for row in rows], 3)
    assert np.array_equal(back, rows)
    assert back.dtype == np.float32
    with pytest.raises(BadInput, match="got a stored vector of 12 bytes; expected 16 for dimension 4"):
        from_blobs([to_blob(rows[0])], 4)
    assert collection_name("default", "fact") == "default/fact"


def test_of_many_vectors_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch, store: Store, add: Add) -> None:
    monkeypatch.setattr(blobs, "_KEPT", 3)
    made = [str(r.record_id) for r in store.commit("default", [add(f"fact {n}") for n in range(8)], actor="t").results]
    search = blobs.BlobSearch(store.journal, dim=store.embedder.dim)
    (query,) = store.embedder.embed(["fact 0"])
    assert search.search("default", "fact", query, 1)[0][0] == made[0]
    assert [key for key, _ in search._recent] == made[-3:]
    told = store.embedder.embed([f"fact {n}" for n in range(8)])
    found = search.vectors([(key, 1) for key in made])
    assert all(np.array_equal(one, other) for one, other in zip(found, told, strict=True))
    assert [key for key, _ in search._recent] == made[2:5], "the newest that were read"


@pytest.mark.parametrize(
    ("ids", "vectors", "said"),
    [
        (["a"], [[1.0, 0], [0, 1]], r"got 1 ids and vectors of shape \(2, 2\)"),
        (["a", "b"], [1.0, 0], r"vectors of shape \(2,\)"),
        (["a", "a"], [[1.0, 0], [0, 1]], "the same id twice"),
        (["a", "b"], [[1.0, 0], [0, 1.002]], "length 1.0020 for 'b'"),
        (["a", "b"], [[0.998, 0], [0, 1]], "length 0.9980 for 'a'"),
        (["a", "b"], [[1.0, 0], [np.nan, 1]], "length nan for 'b'"),
    ],
)
def test_an_index_takes_one_finite_unit_vector_for_each_id(ids: list[str], vectors: list[float], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check_vectors(ids, np.array(vectors, dtype=np.float32))


def test_rounding_is_no_wrong_length() -> None:
    check_vectors(["a", "b"], np.array([[1.0005, 0], [0, 0.9995]], dtype=np.float32))
    check_vectors([], np.zeros((0, 2), dtype=np.float32))


def test_a_tokenizer_gets_visible_text_without_lone_surrogates() -> None:
    assert tokenizable(["a", "b \ud800 c"]) == ["a", "b ? c"]
    for blank in ("", " \n\t"):
        with pytest.raises(BadInput, match="got blank text"):
            tokenizable(["a", blank])


@pytest.mark.parametrize(
    ("block", "numbers"),
    [
        (b"\x00", [0]),
        (b"\x7f\x01", [127, 1]),
        (b"\x81\x00\x05", [128, 5]),
        (b"\x81\x80\x00\x7f", [16384, 127]),
        (b"\xff\x7f\x82\x01", [16383, 257]),
    ],
)
def test_numbers_that_fts5_packed_are_read(block: bytes, numbers: list[int]) -> None:
    assert [words._number(block, at) for at in range(len(numbers))] == numbers
    with pytest.raises(ValueError, match="expected 1 more numbers"):
        words._number(block, len(numbers))


@pytest.mark.parametrize(
    ("op", "given", "needs"),
    [
        (Op.ADD, {}, "payload"),
        (Op.EDIT, {"payload": {"a": 1}}, "target_id"),
        (Op.TAG, {"target_id": "r"}, "usage"),
        (Op.MERGE, {}, "parent_ids, payload"),
        (Op.SUPERSEDE, {"target_id": "r"}, "payload"),
        (Op.REMOVE, {}, "target_id"),
        (Op.RESTORE, {}, "target_id"),
    ],
)
def test_an_op_says_what_it_lacks(op: Op, given: dict[str, object], needs: str) -> None:
    with pytest.raises(ValueError, match=f"{op} needs {needs}; got none"):
        DeltaOp.model_validate({"op": op, **given})


class Wide(Payload):
    """A kind with many required fields."""

    kind: ClassVar[str] = "wide"
    a: str
    b: str
    c: str
    d: str

    def text(self) -> str:
        return self.a


def test_a_payload_that_is_wrong_in_many_ways_is_told_three(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds._PAYLOADS, "wide", Wide)
    (result,) = store.commit("default", [DeltaOp(op=Op.ADD, kind="wide", payload={"e": 1})], actor="t").results
    assert result.reason.startswith("payload is not a wide: ")
    assert result.reason.count(": ") == 4, "what it is, and three fields"


def test_the_database_says_whose_it_is(store: Store) -> None:
    assert store.db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


def test_an_object_is_named_by_module_and_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_test.py").write_text("thing = 7\n")
    (tmp_path / "broken_of_test.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_object("mine_of_test:thing") == 7
    assert load_object("collections.abc:Mapping").__name__ == "Mapping"
    with pytest.raises(NotFound, match="module 'mine_of_test' has no 'other'"):
        load_object("mine_of_test:other")
    for name in ("nowhere_of_test:x", "mine_of_test.deeper:x"):
        with pytest.raises(NotFound, match=f"no module '{name[:-2]}'"):
            load_object(name)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        load_object("broken_of_test:x")
    sys.modules.pop("mine_of_test")


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("api_key", "abcdefg1", False),
        ("api_key", "abcdef1", True),
        ("api_key", "abcdefgh", True),
        ("api_key", 12345678, True),
        ("monkey", "abcdefg1", True),
    ],
)
def test_a_value_under_the_name_of_a_secret_is_one_from_eight_characters_with_a_digit_on(
    name: str, value: object, kept: bool
) -> None:
    assert redact_named(name, value) == (value if kept else "[REDACTED:assigned-secret]")


def test_an_episode_tells_nothing_that_was_not_said() -> None:
    made = Trajectory(task=Task(id="t", instruction="i"))
    assert (made.steps, made.injected, made.outcome, made.error, made.usage) == ((), (), None, None, Usage())
    assert (made.run_id, made.arm, made.policy, made.policy_version, made.opening) == ("", "main", "", "", "")
    assert (made.seed, made.seconds, made.erased, made.forgotten) == (0, 0.0, False, 0)
    step = Step(index=0, action="a")
    assert (step.omitted, step.seconds, step.reply_seconds, step.usage, step.error) == (0, 0.0, 0.0, Usage(), None)
    assert made.task.split == "train"


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_a_reward_is_a_number(reward: float) -> None:
    with pytest.raises(ValueError, match=r"reward\n.*should be a finite number"):
        Outcome(success=False, reward=reward)


@pytest.mark.parametrize(
    ("fields", "fine"),
    [
        ({"k": 0}, True),
        ({"k": -1}, False),
        ({"mmr_lambda": 0.0}, True),
        ({"mmr_lambda": 1.0}, True),
        ({"mmr_lambda": -0.01}, False),
        ({"mmr_lambda": 1.01}, False),
        ({"min_score": -1.0}, True),
        ({"min_score": 1.0}, True),
        ({"min_score": -1.01}, False),
        ({"min_score": 1.01}, False),
    ],
)
def test_a_query_is_within_its_bounds(store: Store, add: Add, fields: dict[str, float], fine: bool) -> None:
    store.commit("default", [add("book a room")], actor="t")
    query = RecallQuery.model_construct(**{**RecallQuery(text="book").__dict__, **fields})
    if fine:
        assert len(store.recall(query)) == (0 if fields.get("k") == 0 else 1)
    else:
        with pytest.raises(BadInput, match="expected k >= 0, mmr_lambda in"):
            store.recall(query)


def test_an_item_is_searched_by_its_texts_or_its_address() -> None:
    item = StoredItem(path=("users", "ann"), name="likes", value={"food": "soup", "n": [1, None], "a": {"b": "c"}})
    assert item.address == (("users", "ann"), "likes")
    assert (item.text(), item.key()) == ("users/ann/likes", "users/ann/likes")
    assert list(texts_in(item.value)) == ["b: c", "food: soup", "n: 1"]
    assert list(texts_in(["x", 2])) == ["x", "2"]
    told = item.model_copy(update={"searched": ("soup", "bread")})
    assert told.text() == "soup\nbread"
    assert told.model_copy(update={"searched": ("...", "!")}).key() == "item", "nothing can be embedded of it"


def test_a_merge_inherits_tasks_counters_and_the_weakest_trust(store: Store, add: Add) -> None:
    first = Provenance(trust=Trust.VERIFIED, task_ids=("t1", "t2"), trajectory_ids=("e1",))
    second = Provenance(trust=Trust.IMPORTED, task_ids=("t2", "t3"), trajectory_ids=("e2", "e1"))
    ops = [add("one", provenance=first), add("two", provenance=second)]
    ids = [str(result.record_id) for result in store.commit("default", ops, actor="t").results]
    for record, usage in zip(ids, (UsageCounts(helpful=2, injected=3), UsageCounts(harmful=1)), strict=True):
        store.commit("default", [DeltaOp(op=Op.TAG, target_id=record, usage=usage)], actor="t")
    targets = [target for record in ids if (target := find_target(store.db, record))]
    assert find_target(store.db, "nothing") is None
    assert total_usage(store.db, targets) == UsageCounts(helpful=2, injected=3, harmful=1)
    assert total_usage(store.db, []) == UsageCounts()
    made = inherit(Provenance(trust=Trust.VERIFIED, task_ids=("t0",)), targets)
    assert (made.trust, made.task_ids, made.trajectory_ids) == (
        Trust.IMPORTED,
        ("t0", "t1", "t2", "t3"),
        ("e1", "e2"),
    )
    assert inherit(Provenance(trust=Trust.OPERATOR), targets).trust is Trust.OPERATOR
