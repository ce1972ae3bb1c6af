"""One suite for every LangGraph store: LangGraph's own in memory, and ours over the journal.

S1  get, put, delete: the last put wins, what is not there is None, a value that was given out is nobody's to change
S2  search: prefix, filter, limit and offset; with a query the nearest first, each with a score
S3  namespaces: prefix, suffix, wildcards, depth, pages, sorted
S4  a batch reads what was before it; of two puts to one address the later counts; abatch answers the same
S5  any sequence of puts and deletes leaves the same items in both (hypothesis)
S6  what is no label is refused
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, Item, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore

from evolve.config.model import Config
from evolve.integrations.langgraph_store import open_journal_store
from memory.embedders.hashing import HashingEmbedder

VALUES: dict[tuple[tuple[str, ...], str], dict[str, Any]] = {
    (("users", "ann"), "food"): {"text": "Ann likes pizza with olives", "rank": 3, "tags": ["a", "b"]},
    (("users", "ann"), "city"): {"text": "Ann lives in Lisbon", "rank": 1, "deep": {"at": {"x": 1}}},
    (("users", "bob"), "food"): {"text": "Bob cooks green curry", "rank": 2, "tags": ["a"]},
    (("docs",), "manual"): {"text": "How to open a door", "rank": 2.5, "draft": True},
    (("docs", "old", "v1"), "notes"): {"text": "Nothing here", "rank": None},
}


def embed(texts: Sequence[str]) -> list[list[float]]:
    return HashingEmbedder().embed(list(texts)).tolist()


@contextmanager
def in_memory() -> Generator[BaseStore]:
    yield InMemoryStore(index={"dims": HashingEmbedder().dim, "embed": embed})


@contextmanager
def in_journal() -> Generator[BaseStore]:
    with (
        tempfile.TemporaryDirectory() as folder,
        open_journal_store(Config.model_validate({"root": Path(folder), "memory": {"index": "exact"}})) as store,
    ):
        yield store


STORES = {"InMemoryStore": in_memory, "JournalStore": in_journal}
Make = Callable[[], Any]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Generator[BaseStore]:
    with STORES[request.param]() as made:
        yield made


@pytest.fixture
def full(store: BaseStore) -> BaseStore:
    for (path, key), value in VALUES.items():
        store.put(path, key, value)
    return store


def names(items: Sequence[Item]) -> list[str]:
    return [".".join((*item.namespace, item.key)) for item in items]


ALL = ["users.ann.food", "users.ann.city", "users.bob.food", "docs.manual", "docs.old.v1.notes"]


def test_get_put_and_delete(store: BaseStore) -> None:
    store.put(("a", "b"), "k", {"x": 1})
    first = store.get(("a", "b"), "k")
    assert first is not None
    assert (first.namespace, first.key, first.value) == (("a", "b"), "k", {"x": 1})
    assert first.created_at <= first.updated_at
    store.put(("a", "b"), "k", {"x": 2, "y": [1, None, {"z": "ä"}]})
    second = store.get(("a", "b"), "k")
    assert second is not None
    assert second.value == {"x": 2, "y": [1, None, {"z": "ä"}]}
    assert first.updated_at <= second.updated_at
    assert store.get(("a",), "k") is None
    assert store.get(("a", "b"), "other") is None
    store.delete(("a", "b"), "k")
    assert store.get(("a", "b"), "k") is None
    store.delete(("a", "b"), "k")
    store.put(("a", "b"), "k", {"x": 3})
    again = store.get(("a", "b"), "k")
    assert again is not None
    assert again.value == {"x": 3}


def test_what_was_given_is_not_what_is_kept(store: BaseStore) -> None:
    value = {"x": 1}
    store.put(("a",), "k", value)
    value["x"] = 2
    found = store.get(("a",), "k")
    assert found is not None
    assert found.value == {"x": 1}


@pytest.mark.parametrize("value", [{}, {"": "!?"}, {"text": "\n\t"}, {"n": 1.5, "ok": False, "none": None}])
def test_odd_values_come_back(store: BaseStore, value: dict[str, Any]) -> None:
    store.put(("a",), "?!", value)
    found = store.get(("a",), "?!")
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(
    ("prefix", "wanted"),
    [
        ((), ALL),
        (("users",), ALL[:3]),
        (("users", "ann"), ALL[:2]),
        (("docs",), ALL[3:]),
        (("docs", "old"), ALL[4:]),
        (("nobody",), []),
        (("user",), []),
    ],
)
def test_a_search_means_what_is_under_a_prefix(full: BaseStore, prefix: tuple[str, ...], wanted: list[str]) -> None:
    found = full.search(prefix)
    assert names(found) == wanted
    assert all(isinstance(item, SearchItem) and item.score is None for item in found)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"rank": 2}, ["users.bob.food"]),
        ({"rank": {"$eq": 3}}, ["users.ann.food"]),
        ({"rank": {"$gt": 2}, "draft": True}, ["docs.manual"]),
        ({"draft": True}, ["docs.manual"]),
        ({"tags": ["a"]}, ["users.bob.food"]),
        ({"tags": ["a", "b"]}, ["users.ann.food"]),
        ({"deep": {"at": {"x": 1}}}, ["users.ann.city"]),
        ({"deep": {"at": {"x": {"$ne": 1}}}}, []),
        ({"draft": {"$ne": True}}, [*ALL[:3], ALL[4]]),
        ({"rank": None}, ["docs.old.v1.notes"]),
        ({"nosuch": 1}, []),
    ],
)
def test_a_filter_compares_values(full: BaseStore, wanted: dict[str, Any], found: list[str]) -> None:
    if "$gt" in str(wanted):
        full.delete(("docs", "old", "v1"), "notes")  # None is no number; LangGraph's store raises over it
    assert names(full.search((), filter=wanted)) == found


@pytest.mark.parametrize(
    ("operator", "found"),
    [("$gt", ["food", "food"]), ("$gte", ["food", "food"]), ("$lt", ["city"]), ("$lte", ["city"])],
)
def test_bounds_compare_numbers(full: BaseStore, operator: str, found: list[str]) -> None:
    assert [item.key for item in full.search(("users",), filter={"rank": {operator: 1.5}})] == found


def test_an_unknown_operator_is_refused(full: BaseStore) -> None:
    with pytest.raises(ValueError, match=r"\$near"):
        full.search((), filter={"rank": {"$near": 1}})


@pytest.mark.parametrize(("limit", "offset"), [(2, 0), (2, 2), (2, 4), (10, 1), (10, 9), (0, 0)])
def test_pages_are_parts_of_the_whole(full: BaseStore, limit: int, offset: int) -> None:
    assert names(full.search((), limit=limit, offset=offset)) == ALL[offset : offset + limit]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("which pizza with olives", "users.ann.food"),
        ("green curry", "users.bob.food"),
        ("open the door", "docs.manual"),
        ("lives in Lisbon", "users.ann.city"),
    ],
)
def test_a_query_puts_the_nearest_first(full: BaseStore, query: str, first: str) -> None:
    found = full.search((), query=query)
    assert names(found)[0] == first
    assert sorted(names(found)) == sorted(ALL)
    scores = [item.score for item in found]
    assert None not in scores
    assert scores == sorted(scores, reverse=True)
    assert names(full.search((), query=query, limit=1)) == [first]
    assert first not in names(full.search((), query=query, offset=1))


def test_a_query_with_prefix_and_filter(full: BaseStore) -> None:
    assert names(full.search(("users", "bob"), query="pizza")) == ["users.bob.food"]
    assert names(full.search((), query="pizza", filter={"rank": 1})) == ["users.ann.city"]
    assert names(full.search(("nobody",), query="pizza")) == []


def test_what_is_not_indexed_comes_last_and_without_a_score(full: BaseStore) -> None:
    full.put(("users", "ann"), "secret", {"text": "pizza pizza pizza"}, index=False)
    full.put(("users", "ann"), "mood", {"text": "curry", "also": "pizza"}, index=["text"])
    found = full.search(("users", "ann"), query="pizza with olives")
    assert names(found)[0] == "users.ann.food"
    assert (names(found)[-1], found[-1].score) == ("users.ann.secret", None)
    assert len(found) == 4


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({}, [("docs",), ("docs", "old", "v1"), ("users", "ann"), ("users", "bob")]),
        ({"prefix": ("users",)}, [("users", "ann"), ("users", "bob")]),
        ({"suffix": ("bob",)}, [("users", "bob")]),
        ({"prefix": ("docs", "*", "v1")}, [("docs", "old", "v1")]),
        ({"prefix": ("*",), "suffix": ("v1",)}, [("docs", "old", "v1")]),
        ({"suffix": ("old", "*")}, [("docs", "old", "v1")]),
        ({"max_depth": 1}, [("docs",), ("users",)]),
        ({"max_depth": 2, "prefix": ("docs",)}, [("docs",), ("docs", "old")]),
        ({"limit": 2, "offset": 1}, [("docs", "old", "v1"), ("users", "ann")]),
        ({"prefix": ("nobody",)}, []),
    ],
)
def test_namespaces_are_listed(full: BaseStore, arguments: dict[str, Any], wanted: list[tuple[str, ...]]) -> None:
    assert full.list_namespaces(**arguments) == wanted


def test_a_batch_reads_what_was_before_it(full: BaseStore) -> None:
    at = ("users", "ann")
    results = full.batch(
        [
            PutOp(at, "food", {"text": "soup"}),
            GetOp(at, "food"),
            PutOp(at, "food", {"text": "stew"}),
            SearchOp(at, filter={"text": "stew"}),
            PutOp(at, "city", None),
            GetOp(at, "city"),
        ]
    )
    assert [results[0], results[2], results[3], results[4]] == [None, None, [], None]
    before = results[1]
    assert isinstance(before, Item)
    assert before.value == VALUES[(at, "food")]
    assert isinstance(results[5], Item)
    assert [item.value for item in full.search(at)] == [{"text": "stew"}]


async def test_the_asynchronous_half_answers_the_same(full: BaseStore) -> None:
    await full.aput(("users", "ann"), "pet", {"text": "a cat"})
    item = await full.aget(("users", "ann"), "pet")
    assert item is not None
    assert item.value == {"text": "a cat"}
    await full.adelete(("users", "ann"), "pet")
    assert await full.aget(("users", "ann"), "pet") is None
    assert names(await full.asearch(("users",), query="green curry"))[0] == "users.bob.food"
    assert await full.alist_namespaces(max_depth=1) == [("docs",), ("users",)]


@pytest.mark.parametrize("path", [(), ("a.b",), ("",), ("langgraph", "x")])
def test_what_is_no_path_is_refused(store: BaseStore, path: tuple[str, ...]) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.put(path, "k", {"x": 1})


def test_time_to_live_is_refused_by_name(store: BaseStore) -> None:
    with pytest.raises(NotImplementedError, match=f"TTL is not supported by {type(store).__name__}"):
        store.put(("a",), "k", {"x": 1}, ttl=5)


PATHS = st.sampled_from([("a",), ("a", "b"), ("c",)])
JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8), st.lists, max_leaves=4)
CHANGES = st.lists(
    st.tuples(PATHS, st.sampled_from(["k", "l"]), st.none() | st.dictionaries(st.text(max_size=4), JSON, max_size=3)),
    max_size=12,
)


@given(CHANGES)
@settings(max_examples=25, deadline=None)
def test_any_changes_leave_the_same_items(changes: list[tuple[tuple[str, ...], str, dict[str, Any] | None]]) -> None:
    """S5, for texts that can be stored: the journal replaces NUL and lone surrogates, and says so in `clean`."""
    left: list[list[tuple[tuple[str, ...], str, dict[str, Any]]]] = []
    for make in (InMemoryStore, in_journal):
        made = make()
        with made if make is in_journal else _plain(made) as store:
            for path, key, value in changes:
                store.put(path, key, _storable(value)) if value is not None else store.delete(path, key)
            found = sorted(store.search((), limit=100), key=lambda item: (item.namespace, item.key))
            left.append([(item.namespace, item.key, item.value) for item in found])
            assert {item.namespace for item in found} <= set(store.list_namespaces())
    assert left[0] == left[1]


@contextmanager
def _plain(store: Any) -> Generator[BaseStore]:
    yield store


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    from memory.content import clean

    return clean(value)
