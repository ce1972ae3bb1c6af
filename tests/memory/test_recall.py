"""Recall over real stores: what is found, in what order, what is kept out, and why."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from memory import blobs, lexical, recall
from memory.embedders.hashing import HashingEmbedder
from memory.errors import BadInput, EmbedderMismatch, JournalError, NotFound
from memory.records import DeltaOp, Op, Provenance, RecallQuery, Status, UsageCounts
from memory.store import Store

BOTH_ENGINES = True

Add = Callable[..., DeltaOp]
FACTS = [
    "Amounts of money are always in cents.",
    "Log in to mail before sending anything.",
    "Calendar events use dates like 2026/11/20.",
    "File names are lower case with dashes.",
    "Paging of contacts starts at one.",
]


def contents(store: Store, text: str, **fields: object) -> list[str]:
    return [
        found.record.payload.content for found in store.recall(RecallQuery.model_validate({"text": text, **fields}))
    ]


@pytest.fixture
def filled(store: Store, add: Add) -> Store:
    store.commit("default", [add(text, f"task{i}") for i, text in enumerate(FACTS)], actor="test")
    return store


def test_texts_that_hold_a_word_are_counted_in_each_namespace_and_no_further_than_asked(
    store: Store, add: Callable[..., DeltaOp]
) -> None:
    for namespace, texts in {
        "a": ["mails are sent", "a mail and a token"],
        "b": ["mail", "no mail", "the mail"],
    }.items():
        store.commit(namespace, [add(text) for text in texts], actor="test")
    words, asked = store.journal.words, {"mail": "mails", "token": "token", "absent": "absent"}
    assert words.records(asked, None, None) == {"mail": 5, "token": 1, "absent": 0}
    assert words.records(asked, "a", None) == {"mail": 2, "token": 1, "absent": 0}
    assert words.records(asked, "b", 2) == {"mail": 2, "token": 0, "absent": 0}
    assert words.records(asked, None, 4) == {"mail": 4, "token": 1, "absent": 0}


def test_a_text_with_a_word_that_no_index_takes_is_found_by_its_other_words(store: Store, add: Add) -> None:
    text = f"the checksum of a mail is {Random(7).randbytes(2500).hex()} today"
    assert store.commit("default", [add(text)], actor="test").applied
    assert contents(store, "checksum today") == [text]
    assert store.journal.words.totals() == (1, 8)
    assert store.doctor(rebuild=True)[1:] == []


def test_words_that_cannot_be_read_are_an_error_of_the_journal(filled: Store) -> None:
    filled.db.execute(f"DROP TABLE {'record_words' if filled.journal.database else 'record_text'}")
    with pytest.raises(JournalError, match="Run `evolve memory doctor`"):
        filled.recall(RecallQuery(text="amounts of money"))


def test_the_fitting_record_comes_first_with_its_score_parts(filled: Store) -> None:
    best = filled.recall(RecallQuery(text="how are amounts of money written?"))[0]
    assert best.record.payload.content == FACTS[0]
    assert best.rank == 1
    assert set(best.scores) == {"lexical", "vector", "utility", "rrf"}
    assert best.scores["lexical"] > 0
    assert 0 < best.scores["vector"] <= 1
    assert best.scores["utility"] == 0.5
    assert best.tokens == filled.count_tokens(FACTS[0])


def test_spelling_is_forgiven_by_vectors(filled: Store) -> None:
    best = filled.recall(RecallQuery(text="calendr eventz"))[0]
    assert best.record.payload.content == FACTS[2]
    assert best.scores["lexical"] == 0.0


def test_a_floor_leaves_out_what_only_vectors_found(filled: Store) -> None:
    assert contents(filled, "quantum chromodynamics", min_score=0.4) == []
    assert contents(filled, "the of and", min_score=0.9) == []
    assert contents(filled, "cents", min_score=0.99) == [FACTS[0]]


@pytest.mark.parametrize("text", ["", "  \n", '"', "*", "NEAR(", "?!", "\x00", "\ud800"])
def test_odd_queries_are_answered(filled: Store, text: str) -> None:
    filled.recall(RecallQuery(text=text))


def test_an_empty_namespace_and_k_zero_give_nothing(filled: Store) -> None:
    assert filled.recall(RecallQuery(text="money", namespace="elsewhere")) == ()
    assert filled.recall(RecallQuery(text="money", k=0)) == ()


@pytest.mark.parametrize("wrong", [{"k": -1}, {"mmr_lambda": 1.5}, {"min_score": 7.0}])
def test_impossible_queries_are_refused(filled: Store, wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="expected k >= 0"):
        filled.recall(RecallQuery.model_validate({"text": "x", **wrong}))


def test_namespaces_and_kinds_do_not_mix(filled: Store, add: Add) -> None:
    filled.commit("other", [add("Amounts of money are in dollars.")], actor="test")
    assert contents(filled, "amounts of money", namespace="other") == ["Amounts of money are in dollars."]
    assert contents(filled, "amounts of money", kinds=("nothing",)) == []


def test_only_recallable_records_are_found(filled: Store, add: Add) -> None:
    filled.commit("default", [add("Money candidate.", status=Status.CANDIDATE)], actor="test")
    money = filled.recall(RecallQuery(text="amounts of money"))[0].record
    assert "Money candidate." not in contents(filled, "money candidate")
    filled.commit("default", [DeltaOp(op=Op.REMOVE, kind="fact", target_id=money.id)], actor="test")
    assert FACTS[0] not in contents(filled, "amounts of money")
    filled.commit("default", [DeltaOp(op=Op.RESTORE, kind="fact", target_id=money.id)], actor="test")
    assert contents(filled, "amounts of money")[0] == FACTS[0]


def test_an_edit_is_found_by_its_new_text_at_once(filled: Store) -> None:
    money = filled.recall(RecallQuery(text="amounts of money"))[0].record
    edit = DeltaOp(op=Op.EDIT, kind="fact", target_id=money.id, payload={"content": "Zebras graze at noon."})
    filled.commit("default", [edit], actor="test")
    assert contents(filled, "zebras graze", k=1) == ["Zebras graze at noon."]
    assert "Amounts" not in " ".join(contents(filled, "amounts cents", min_score=0.3))


def test_leave_one_task_out(filled: Store) -> None:
    assert contents(filled, "amounts of money", k=1) == [FACTS[0]]
    rest = contents(filled, "amounts of money", exclude_task_ids=("task0",), min_score=-1.0)
    assert FACTS[0] not in rest
    assert len(rest) == 4


def test_records_that_are_left_out_take_neither_places_nor_tokens(filled: Store) -> None:
    best = filled.recall(RecallQuery(text="amounts of money", k=3, min_score=-1.0))
    assert best[0].record.payload.text() == FACTS[0]
    without = (best[0].record.id,)
    free = filled.recall(RecallQuery(text="amounts of money", k=2, exclude_ids=without, min_score=-1.0))
    budget = sum(item.tokens for item in free)
    rest = contents(filled, "amounts of money", k=2, token_budget=budget, exclude_ids=without, min_score=-1.0)
    assert (len(rest), FACTS[0] in rest) == (2, False)


def test_a_merge_is_left_out_with_any_of_its_tasks(filled: Store) -> None:
    ids = tuple(found.record.id for found in filled.recall(RecallQuery(text="amounts mail", k=2)))
    merge = DeltaOp(
        op=Op.MERGE,
        kind="fact",
        parent_ids=ids,
        payload={"content": "Amounts in mail are cents."},
        provenance=Provenance(),
    )
    filled.commit("default", [merge], actor="test")
    assert contents(filled, "amounts in mail", k=1) == ["Amounts in mail are cents."]
    for task in ("task0", "task1"):
        assert "Amounts in mail are cents." not in contents(filled, "amounts in mail", exclude_task_ids=(task,))


def test_filters_never_starve_the_answer(store: Store, add: Add) -> None:
    """1,000 retired or excluded records fit better than the three that may be shown."""
    crowd = [add(f"deploy rocket number {i}", "held-out") for i in range(1000)]
    store.commit("default", [*crowd, *(add(f"deploy rocket late {i}", "mine") for i in range(3))], actor="test")
    found = contents(store, "deploy rocket number", exclude_task_ids=("held-out",), k=5)
    assert sorted(found) == [f"deploy rocket late {i}" for i in range(3)]


def test_filters_never_starve_what_only_vectors_find(store: Store, add: Add) -> None:
    """None of the words occurs, so that the search by vectors alone has to ask for more."""
    crowd = [add(f"rockett deployy nr{i}", "held-out") for i in range(300)]
    store.commit("default", [*crowd, *(add(f"rocket-like thing {i}", "mine") for i in range(3))], actor="test")
    found = contents(store, "rokett deploi", exclude_task_ids=("held-out",), k=3)
    assert sorted(found) == [f"rocket-like thing {i}" for i in range(3)]


def test_the_budget_is_hard(filled: Store) -> None:
    for budget in (0, 5, 12, 25, 1000):
        found = filled.recall(RecallQuery(text="amounts mail calendar file paging", token_budget=budget))
        assert sum(item.tokens for item in found) <= budget
        assert [item.rank for item in found] == list(range(1, len(found) + 1))
    assert len(found) == 5


def test_utility_breaks_near_ties_and_not_more(store: Store, add: Add) -> None:
    store.commit("default", [add("Retry the call twice."), add("Retry the call once."), add("Bananas.")], actor="test")
    ids = {r.payload.content: r.id for r in store.view("default").records()}
    for name, counts in {"Retry the call once.": UsageCounts(helpful=9), "Bananas.": UsageCounts(helpful=99)}.items():
        store.commit("default", [DeltaOp(op=Op.TAG, kind="fact", target_id=ids[name], usage=counts)], actor="test")
    assert contents(store, "retry the call", mmr_lambda=1.0, min_score=-1.0) == [
        "Retry the call once.",
        "Retry the call twice.",
        "Bananas.",
    ]


def test_diversity_spreads_the_answer(store: Store, add: Add) -> None:
    copies = [add(f"Always confirm the payment token first, step {i}.") for i in range(4)]
    store.commit("default", [*copies, add("Payment dates are in UTC.")], actor="test")
    query = "confirm the payment token first"
    assert "Payment dates are in UTC." not in contents(store, query, k=3, mmr_lambda=1.0)
    assert "Payment dates are in UTC." in contents(store, query, k=3, mmr_lambda=0.4)


def test_equal_records_come_in_order_of_creation(store: Store, add: Add) -> None:
    store.commit("default", [add("Same text.") for _ in range(6)], actor="test")
    for _ in range(3):
        found = store.recall(RecallQuery(text="same text", k=6))
        assert [item.record.number for item in found] == sorted(item.record.number for item in found)


def test_a_snapshot_answers_as_it_was(filled: Store, add: Add) -> None:
    before = filled.recall(RecallQuery(text="amounts of money", mmr_lambda=1.0))
    frozen = filled.snapshot("default")
    money = before[0].record
    assert len(before) > 1
    edit = DeltaOp(op=Op.EDIT, kind="fact", target_id=money.id, payload={"content": "Money grows on trees."})
    tag = DeltaOp(op=Op.TAG, kind="fact", target_id=before[1].record.id, usage=UsageCounts(harmful=50))
    filled.commit("default", [edit, tag, add("Amounts of money are in yen."), add("Amounts again.")], actor="test")
    after = filled.recall(RecallQuery(text="amounts of money", mmr_lambda=1.0, snapshot_id=frozen.id))
    assert after == before
    assert contents(filled, "amounts of money", k=1) != [FACTS[0]]


def test_a_snapshot_name_means_its_latest_freeze(filled: Store) -> None:
    first = filled.snapshot("default")
    target = filled.recall(RecallQuery(text="amounts of money"))[0].record
    assert filled.recall(RecallQuery(text="amounts", snapshot_id=first.id))[0].scores["utility"] == 0.5
    filled.commit(
        "default", [DeltaOp(op=Op.TAG, kind="fact", target_id=target.id, usage=UsageCounts(helpful=8))], actor="test"
    )
    second = filled.snapshot("default")
    assert second.id == first.id
    assert filled.recall(RecallQuery(text="amounts", snapshot_id=first.id))[0].scores["utility"] == 0.9
    old = f"{first.id}@{first.position}"
    assert filled.recall(RecallQuery(text="amounts", snapshot_id=old))[0].scores["utility"] == 0.5


def test_frozen_recall_leaves_out_tasks_and_what_was_forgotten(filled: Store) -> None:
    frozen = filled.snapshot("default")
    query = {"text": "amounts of money", "snapshot_id": frozen.id}
    money = filled.recall(RecallQuery.model_validate(query))[0].record
    assert FACTS[0] not in contents(filled, exclude_task_ids=("task0",), **query)
    filled.forget(money.id)
    assert FACTS[0] not in contents(filled, **query)


def test_unknown_and_foreign_snapshots_are_refused(filled: Store) -> None:
    with pytest.raises(NotFound, match="no snapshot"):
        filled.recall(RecallQuery(text="x", snapshot_id="nope"))
    other = filled.snapshot("other")
    with pytest.raises(NotFound, match="belongs to namespace 'other'"):
        filled.recall(RecallQuery(text="x", snapshot_id=other.id))


def test_another_embedder_is_refused_and_reindex_mends_it(filled: Store, reopen: Callable[..., Store]) -> None:
    frozen = filled.snapshot("default")
    filled.close()
    with reopen(embedder=HashingEmbedder(64)) as store:
        with pytest.raises(EmbedderMismatch, match="evolve memory reindex"):
            store.recall(RecallQuery(text="money"))
        assert store.reindex() == 5
        assert contents(store, "amounts of money", k=1) == [FACTS[0]]
        assert contents(store, "amounts of money", k=1, snapshot_id=frozen.id) == [FACTS[0]]
    with reopen() as old, pytest.raises(EmbedderMismatch):
        old.recall(RecallQuery(text="money"))


def test_an_embedder_that_another_process_changed_is_refused_too(filled: Store, reopen: Callable[..., Store]) -> None:
    assert contents(filled, "amounts of money", k=1) == [FACTS[0]]
    with reopen(embedder=HashingEmbedder(64)) as other:
        other.reindex()
    with pytest.raises(EmbedderMismatch, match="evolve memory reindex"):
        filled.recall(RecallQuery(text="money"))


def test_the_parts_of_a_score_are_said_to_six_digits_and_fuse_as_they_say(store: Store, add: Add) -> None:
    (result,) = store.commit(
        "default", [add("amounts of money are cents"), add("bananas are yellow")], actor="t"
    ).results[:1]
    tag = DeltaOp(op=Op.TAG, target_id=result.record_id, usage=UsageCounts(helpful=5, harmful=1))
    store.commit("default", [tag], actor="t")
    best, other = store.recall(RecallQuery(text="amounts money", min_score=-1.0))
    for found in (best, other):
        assert all(value == round(value, 6) for value in found.scores.values())
    assert best.scores["utility"] == 0.75
    assert best.scores["rrf"] == round(2.5 / 61, 6), "first by words, by vectors and, at half weight, by use"
    assert other.scores["rrf"] == round(1.5 / 62, 6), "second by vectors and use, and without a word in common"


def test_the_floor_is_the_least_that_passes(filled: Store) -> None:
    found = filled.recall(RecallQuery(text="calendr eventz", min_score=-1.0, k=100, mmr_lambda=1.0))
    cosines = sorted(item.scores["vector"] for item in found)
    assert [item.scores["lexical"] for item in found] == [0.0] * len(FACTS)
    for at, floor in enumerate(cosines):
        passed = filled.recall(RecallQuery(text="calendr eventz", min_score=floor, k=100))
        assert sorted(item.scores["vector"] for item in passed) == cosines[at:]
        one = filled.recall(RecallQuery(text="calendr eventz", min_score=floor, k=1))
        assert len(one) == 1


def test_more_snapshots_than_are_kept_are_answered_each_as_it_was(filled: Store, add: Add) -> None:
    snapshots = []
    for at in range(7):
        filled.commit("default", [add(f"zebra number {at}")], actor="t")
        snapshots.append(filled.snapshot("default").id)
    for _ in range(2):
        for at, name in enumerate(snapshots):
            assert len(contents(filled, "zebra", snapshot_id=name, min_score=1.0)) == at + 1


def test_tokens_of_a_text_are_counted_once_and_what_was_counted_first_is_forgotten_first(
    reopen: Callable[..., Store], add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "_TOKENS_KEPT", 2)
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    with reopen(count_tokens=count) as store:
        store.commit("default", [add("alpha"), add("beta"), add("gamma")], actor="t")
        for word in ("alpha", "alpha", "beta", "alpha", "gamma", "beta", "alpha"):
            assert [item.tokens for item in store.recall(RecallQuery(text=word, min_score=1.0))] == [len(word)]
    assert counted == ["alpha", "beta", "gamma", "alpha"]


def test_more_vectors_than_are_kept_are_read_again(
    filled: Store, reopen: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = RecallQuery(text="amounts mail calendar file paging", min_score=-1.0)
    expected = filled.recall(query)
    monkeypatch.setattr(blobs, "_KEPT", 2)
    with reopen() as store:
        store.recall(query.model_copy(update={"text": "zebra"}))
        assert len(expected) == len(FACTS)
        assert [item.scores for item in store.recall(query)] == [item.scores for item in expected]


def test_as_many_as_were_asked_for_come_back_from_among_many(store: Store, add: Add) -> None:
    store.commit("default", [add(f"deploy rocket number {at}") for at in range(90)], actor="t")
    frozen = store.snapshot("default").id
    for snapshot_id in (None, frozen):
        for k in (1, 63, 64, 65, 89, 90, 91):
            query = RecallQuery(text="deploy rocket", k=k, mmr_lambda=1.0, snapshot_id=snapshot_id)
            found = store.recall(query)
            assert [item.rank for item in found] == list(range(1, min(k, 90) + 1))


@pytest.mark.parametrize("postings", [2, 1000])
def test_no_score_tells_what_another_namespace_holds(
    filled: Store, add: Add, monkeypatch: pytest.MonkeyPatch, postings: int
) -> None:
    monkeypatch.setattr(lexical, "rarest", partial(lexical.rarest, postings=postings))
    filled.commit("default", [add("Mail is sent before noon, and money after.", status=Status.CANDIDATE)], actor="t")
    asked = ["how are amounts of money written?", "mail mail before noon", "log in", "dashes cents contacts calendar"]

    def answers() -> list[list[tuple[str, dict[str, float]]]]:
        return [[(item.record.id, item.scores) for item in filled.recall(RecallQuery(text=text))] for text in asked]

    before = answers()
    filled.commit("other", [add(f"Send mail and money to contacts {at}.") for at in range(20)], actor="t")
    assert answers() == before
    filled.commit("default", [add("Money is counted twice.")], actor="t")
    assert answers() != before
