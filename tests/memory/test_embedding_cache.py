"""A text is embedded once per model, whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from memory import embedding_cache
from memory.embedders.hashing import HashingEmbedder
from memory.embedding_cache import CachedEmbedder
from memory.errors import BadInput
from memory.journal import Journal
from memory.protocols import Vector


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
