"""What every `Index` must do, run over every implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import BadInput, EmbedderMismatch
from memory.index_kinds import index_kinds
from memory.index_place import ServedIndex
from memory.indexes.chroma import ChromaIndex
from memory.indexes.exact import ExactIndex
from memory.protocols import Index, Vector
from tests.index_servers import SERVED, served_index

DIM = 16
MAKERS: dict[str, Callable[[Path], Index]] = {
    "exact": lambda path: ExactIndex(),
    "chroma": lambda path: ChromaIndex(path / "index", model="contract", dim=DIM),
    **{kind: lambda path, kind=kind: connected(served_index(kind, model="contract", dim=DIM)) for kind in SERVED},
}


def connected(index: ServedIndex) -> ServedIndex:
    index.connect()
    return index


def unit(seed: int, n: int, dim: int = DIM) -> Vector:
    vectors = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(params=sorted(MAKERS))
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    made = MAKERS[request.param](tmp_path)
    yield made
    made.close()


def test_every_implementation_is_covered() -> None:
    assert set(index_kinds()) == set(MAKERS)


@pytest.mark.parametrize("kind", SERVED)
def test_what_is_on_a_server_is_listed_kept_apart_by_workspace_and_erased(kind: str) -> None:
    mine, others = (connected(served_index(kind, model="contract", dim=DIM)) for _ in range(2))
    vectors = unit(20, 3)
    mine.upsert("ns/fact", list("bca"), vectors)
    mine.upsert("ns/note", ["d"], vectors[:1])
    others.upsert("ns/fact", ["x"], vectors[:1])
    assert mine.collections() == ["ns/fact", "ns/note"]
    assert (mine.ids("ns/fact"), mine.ids("ns/nothing"), others.ids("ns/fact")) == (list("abc"), [], ["x"])
    mine.close()
    mine.close()
    mine.connect()
    mine.erase()
    assert (mine.collections(), mine.count("ns/fact")) == ([], 0)
    assert others.ids("ns/fact") == ["x"]
    mine.upsert("ns/fact", ["again"], vectors[:1])
    assert mine.ids("ns/fact") == ["again"]
    mine.close()
    others.close()


@pytest.mark.parametrize("kind", SERVED)
def test_two_processes_share_what_is_on_a_server_and_must_have_one_embedder(kind: str) -> None:
    first = connected(served_index(kind, model="contract", dim=DIM))
    second = connected(served_index(kind, model="contract", dim=DIM, beside=first))
    stranger = connected(served_index(kind, model="another", dim=DIM, beside=first))
    vectors = unit(21, 2)
    first.upsert("ns/fact", list("ab"), vectors)
    assert [key for key, _ in second.search("ns/fact", vectors[1], 1)] == ["b"]
    first.erase()
    first.upsert("ns/fact", ["c"], vectors[:1])
    with pytest.raises(EmbedderMismatch, match=r"made by embedder 'contract'.*'another'.*evolve memory reindex"):
        stranger.search("ns/fact", vectors[0], 1)
    for each in (first, second, stranger):
        each.close()


def test_unknown_collection_is_empty(index: Index) -> None:
    assert index.count("ns/fact") == 0
    assert index.search("ns/fact", unit(0, 1)[0], 5) == []
    index.remove("ns/fact", ["nobody"])


def test_finds_the_nearest_with_their_cosine(index: Index) -> None:
    vectors = unit(1, 50)
    ids = [f"id{i:02d}" for i in range(50)]
    index.upsert("ns/fact", ids, vectors)
    query = unit(2, 1)[0]
    cosines = vectors @ query
    best = [ids[row] for row in np.argsort(-cosines)[:5]]
    found = index.search("ns/fact", query, 5)
    assert [key for key, _ in found] == best
    assert [cosine for _, cosine in found] == pytest.approx(sorted(cosines, reverse=True)[:5], abs=1e-5)


def test_cosine_spans_minus_one_to_one(index: Index) -> None:
    axis = np.eye(DIM, dtype=np.float32)
    index.upsert("ns/fact", ["same", "across", "opposite"], np.stack([axis[0], axis[1], -axis[0]]))
    found = index.search("ns/fact", axis[0], 3)
    assert [key for key, _ in found] == ["same", "across", "opposite"]
    assert [cosine for _, cosine in found] == pytest.approx([1.0, 0.0, -1.0], abs=1e-6)
    assert all(-1.0 <= cosine <= 1.0 for _, cosine in found)


def test_upsert_replaces(index: Index) -> None:
    axis = np.eye(DIM, dtype=np.float32)
    index.upsert("ns/fact", ["a"], axis[:1])
    index.upsert("ns/fact", ["a"], axis[1:2])
    assert index.count("ns/fact") == 1
    assert index.search("ns/fact", axis[1], 1)[0] == ("a", pytest.approx(1.0))


def test_remove_forgets_and_ignores_unknown_ids(index: Index) -> None:
    vectors = unit(3, 4)
    index.upsert("ns/fact", list("abcd"), vectors)
    index.remove("ns/fact", ["a", "nobody", "c"])
    index.remove("ns/fact", [])
    assert index.count("ns/fact") == 2
    assert {key for key, _ in index.search("ns/fact", vectors[0], 10)} == {"b", "d"}


def test_collections_do_not_mix(index: Index) -> None:
    vectors = unit(4, 2)
    index.upsert("ns/fact", ["a"], vectors[:1])
    index.upsert("ns/fact2", ["b"], vectors[1:])
    index.upsert("ns-fact", ["c"], vectors[1:])
    assert [key for key, _ in index.search("ns/fact", vectors[1], 5)] == ["a"]


@pytest.mark.parametrize("name", ["", "x", "ünï/ço dé", "a" * 600, "..//..", "ns/fact\nx", "🦜/fact"])
def test_any_collection_name_is_legal(index: Index, name: str) -> None:
    index.upsert(name, ["a"], unit(5, 1))
    index.upsert(name + "!", ["b"], unit(5, 1))
    assert index.count(name) == 1


def test_k_larger_than_the_collection_and_not_positive(index: Index) -> None:
    index.upsert("ns/fact", list("abc"), unit(6, 3))
    assert len(index.search("ns/fact", unit(7, 1)[0], 500)) == 3
    assert index.search("ns/fact", unit(7, 1)[0], 0) == []


def test_ties_go_by_id(index: Index) -> None:
    same = np.repeat(unit(8, 1), 5, axis=0)
    index.upsert("ns/fact", ["e", "b", "d", "a", "c"], same)
    assert [key for key, _ in index.search("ns/fact", same[0], 5)] == list("abcde")


@pytest.mark.parametrize(
    ("ids", "vectors"),
    [
        (["a"], np.zeros((1, DIM), dtype=np.float32)),
        (["a"], np.full((1, DIM), np.nan, dtype=np.float32)),
        (["a"], 2 * unit(9, 1)),
        (["a", "b"], unit(9, 1)),
        (["a", "a"], unit(9, 2)),
    ],
    ids=["zero", "nan", "not-unit", "count", "twice"],
)
def test_bad_vectors_are_refused_and_change_nothing(index: Index, ids: list[str], vectors: Vector) -> None:
    index.upsert("ns/fact", ["kept"], unit(10, 1))
    with pytest.raises(BadInput):
        index.upsert("ns/fact", ids, vectors)
    assert index.count("ns/fact") == 1


def test_another_dimension_is_refused(index: Index) -> None:
    index.upsert("ns/fact", ["a"], unit(11, 1))
    with pytest.raises(BadInput, match="dimension 8"):
        index.upsert("ns/fact", ["b"], unit(11, 1, dim=8))
    with pytest.raises(BadInput, match="query"):
        index.search("ns/fact", unit(11, 1, dim=8)[0], 1)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["upsert", "remove"]), st.sets(st.integers(0, 40), max_size=12)), max_size=12)
)
def test_any_history_leaves_what_a_dictionary_would(steps: list[tuple[str, set[int]]]) -> None:
    """Only exact search: rows move when one is removed, which is where such an index goes wrong."""
    index, model = ExactIndex(), dict[str, Vector]()
    for turn, (what, numbers) in enumerate(steps):
        ids = [f"id{number:02d}" for number in sorted(numbers)]
        if what == "upsert":
            vectors = unit(turn, max(1, len(ids)))[: len(ids)]
            index.upsert("c", ids, vectors)
            model |= dict(zip(ids, vectors, strict=True))
        else:
            index.remove("c", ids)
            model = {key: vector for key, vector in model.items() if key not in ids}
    query = unit(99, 1)[0]
    expected = sorted(
        ((key, float(v @ query)) for key, v in model.items()), key=lambda hit: (-round(hit[1], 6), hit[0])
    )
    found = index.search("c", query, 100)
    assert index.count("c") == len(model)
    assert dict(found) == pytest.approx(dict(expected), abs=2e-6)


def test_nothing_to_insert_changes_nothing_whatever_its_dimension(index: Index) -> None:
    index.upsert("ns/fact", [], np.zeros((0, 8), dtype=np.float32))
    assert index.count("ns/fact") == 0
    if not isinstance(index, ExactIndex):
        assert cast(ServedIndex, index).collections() == []
    index.upsert("ns/fact", ["a"], unit(12, 1))
    assert index.count("ns/fact") == 1


@pytest.mark.parametrize("k", [1, 2, 63, 64, 65, 129, 130, 131])
def test_the_best_of_more_rows_than_one_block_are_found(k: int) -> None:
    index, vectors = ExactIndex(), unit(13, 130)
    ids = [f"id{i:03d}" for i in range(130)]
    for start in (0, 64):
        index.upsert("c", ids[start : start + 66], vectors[start : start + 66])
    cosines = np.round(vectors @ vectors[5], 6).tolist()
    expected = sorted(zip(ids, cosines, strict=True), key=lambda hit: (-hit[1], hit[0]))[:k]
    found = index.search("c", vectors[5], k)
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert [cosine for _, cosine in found] == pytest.approx([cosine for _, cosine in expected], abs=2e-6)


def test_a_closed_exact_index_is_empty_and_can_be_filled_again() -> None:
    index = ExactIndex()
    index.upsert("c", ["a"], unit(14, 1))
    index.close()
    assert index.count("c") == 0
    index.upsert("c", ["b"], unit(14, 1, dim=8))
    assert index.search("c", unit(14, 1, dim=8)[0], 1) == [("b", 1.0)]


def test_equal_vectors_tie_although_their_rows_are_summed_differently() -> None:
    index = ExactIndex()
    same = np.repeat(unit(15, 1, dim=384), 70, axis=0)
    index.upsert("c", [f"id{i:02d}" for i in reversed(range(70))], same)
    found = index.search("c", unit(16, 1, dim=384)[0], 70)
    assert [key for key, _ in found] == [f"id{i:02d}" for i in range(70)]
    assert all(round(cosine, 6) == pytest.approx(cosine, abs=1e-8) for _, cosine in found)
