"""A text is embedded once per model, whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from memory import embedding_cache
from memory.embedders.hashing import HashingEmbedder
from memory.embedding_cache import CachedEmbedder
from memory.errors import BadInput, EmbedderMismatch
from memory.journal import Journal
from memory.proposals import prepare
from memory.protocols import Vector
from memory.records import DeltaOp, Op
from memory.store import Store

BOTH_ENGINES = True


class Counting(HashingEmbedder):
    """A hashing embedder that writes down what it was asked."""

    def __init__(self, dim: int = 64) -> None:
        super().__init__(dim)
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vector:
        self.asked += texts
        return super().embed(texts)


@pytest.fixture
def journal(path: Path) -> Journal:
    opened = Journal(path)
    yield opened
    opened.close()


def test_a_text_is_embedded_once(journal: Journal) -> None:
    behind = Counting()
    cached = CachedEmbedder(behind, journal, persist=False)
    first = cached.embed(["a", "b", "a"])
    assert behind.asked == ["a", "b"]
    assert np.array_equal(first, cached.embed(["a", "b", "a"]))
    assert behind.asked == ["a", "b"]
    assert np.array_equal(first, HashingEmbedder(64).embed(["a", "b", "a"]))


def test_what_was_not_asked_for_longest_goes_first(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_cache, "_REMEMBERED", 2)
    behind = Counting()
    cached = CachedEmbedder(behind, journal, persist=False)
    for text in ("a", "b", "a", "c", "a", "b"):
        cached.embed([text])
    assert behind.asked == ["a", "b", "c", "b"]


def test_another_process_finds_it_by_model_and_hash(journal: Journal) -> None:
    texts = [f"text {i}" for i in range(1200)]
    CachedEmbedder(Counting(), journal, persist=True).embed(texts)
    behind = Counting()
    vectors = CachedEmbedder(behind, journal, persist=True).embed([*texts, "new"])
    assert behind.asked == ["new"]
    assert np.array_equal(vectors[:-1], HashingEmbedder(64).embed(texts))
    other = Counting(128)
    CachedEmbedder(other, journal, persist=True).embed(["text 1"])
    assert other.asked == ["text 1"]


def test_nothing_is_written_without_persist_or_read_only(journal: Journal, path: Path) -> None:
    CachedEmbedder(Counting(), journal, persist=False).embed(["a"])
    reader = Journal(path, read_only=True)
    assert CachedEmbedder(Counting(), reader, persist=True).embed(["a"]).shape == (1, 64)
    assert reader.query("SELECT count(*) FROM embedding_cache") == [(0,)]
    reader.close()


def test_a_refused_text_leaves_nothing_behind(journal: Journal) -> None:
    cached = CachedEmbedder(Counting(), journal, persist=True)
    with pytest.raises(BadInput, match="blank"):
        cached.embed(["fine", " "])
    assert journal.query("SELECT count(*) FROM embedding_cache") == [(0,)]


class Short(HashingEmbedder):
    """An embedder that forgets the last text."""

    def embed(self, texts: Sequence[str]) -> Vector:
        return super().embed(texts)[:-1]


def test_an_embedder_that_returns_too_few_vectors_is_never_believed(
    journal: Journal, store: Store, add: Callable[..., DeltaOp]
) -> None:
    with pytest.raises(ValueError, match="shorter"):
        CachedEmbedder(Short(), journal, persist=False).embed(["a", "b"])
    with pytest.raises(ValueError, match="shorter"):
        prepare([add("a"), add("b")], Short())
    store.commit("default", [add("a"), add("b")], actor="t")
    with pytest.raises(ValueError, match="shorter"):
        embedding_cache.reindex(store.journal, Short(), store.index)
    assert store.doctor() == []


@pytest.mark.parametrize("persist", [False, True])
def test_any_number_of_texts_is_embedded_each_with_its_own_vector(
    journal: Journal, persist: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_cache, "_REMEMBERED", 10)
    behind = Counting()
    cached = CachedEmbedder(behind, journal, persist=persist)
    assert cached.embed([]).shape == (0, 64)
    texts = [f"text {at}" for at in range(1003)]
    for _ in range(2):
        assert np.array_equal(cached.embed(texts), HashingEmbedder(64).embed(texts))
    assert len(behind.asked) == (1003 if persist else 2006 - 10)


def test_every_version_is_embedded_anew_in_one_go(
    store: Store, add: Callable[..., DeltaOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_cache, "_BATCH", 2)
    results = store.commit("default", [add(f"text {at}") for at in range(5)], actor="t").results
    edit = DeltaOp(op=Op.EDIT, kind="fact", target_id=results[0].record_id, payload={"content": "another"})
    store.commit("default", [edit], actor="t")
    store.forget(str(results[1].record_id))
    behind = Counting(32)
    assert embedding_cache.reindex(store.journal, behind, store.index) == 5
    assert sorted(behind.asked) == ["another", "text 0", "text 2", "text 3", "text 4"]
    rows = store.journal.query("SELECT model, dim, length(vector) FROM embeddings")
    assert rows == [(behind.model, 32, 128)] * 5


class Interrupted(Counting):
    """An embedder that is slow: others do something before it returns for the first time."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__(256)
        self.meanwhile: Callable[[], object] | None = meanwhile

    def embed(self, texts: Sequence[str]) -> Vector:
        vectors = super().embed(texts)
        if self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return vectors


def test_what_others_commit_while_texts_are_embedded_anew_has_a_vector(
    store: Store, reopen: Callable[..., Store], add: Callable[..., DeltaOp]
) -> None:
    store.commit("default", [add("one"), add("two")], actor="t")
    with reopen() as other:
        behind = Interrupted(lambda: other.commit("default", [add("three"), add("two")], actor="t"))
        assert embedding_cache.reindex(store.journal, behind, store.index) == 4
    assert sorted(behind.asked) == ["one", "three", "two"]
    assert store.doctor() == []


def test_what_others_forget_while_texts_are_embedded_anew_has_no_vector(
    store: Store, reopen: Callable[..., Store], add: Callable[..., DeltaOp]
) -> None:
    kept, gone = (str(r.record_id) for r in store.commit("default", [add("one"), add("two")], actor="t").results)
    with reopen() as other:
        assert embedding_cache.reindex(store.journal, Interrupted(lambda: other.forget(gone)), store.index) == 1
    assert store.journal.query("SELECT record_id FROM embeddings") == [(kept,)]


def test_who_was_open_before_the_embedder_changed_writes_no_vector_of_the_old_one(
    store: Store, reopen: Callable[..., Store], add: Callable[..., DeltaOp]
) -> None:
    store.commit("default", [add("one")], actor="t")
    with reopen(embedder=HashingEmbedder(64)) as other:
        other.reindex()
        with pytest.raises(EmbedderMismatch, match=r"'hashing-v1-64' .* but 'hashing-v1-256' .* is configured"):
            store.commit("default", [add("two")], actor="t")
        assert [record.payload.text() for record in store.records("default")] == ["one"]
        assert other.commit("default", [add("two")], actor="t").results[0].applied
        assert other.doctor() == []
    store.reindex()
    assert store.commit("default", [add("three")], actor="t").results[0].applied
    assert store.doctor() == []
