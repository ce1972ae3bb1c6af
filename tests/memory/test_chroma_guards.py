"""The traps of Chroma that were measured before it was chosen, each with its guard."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import chromadb
import numpy as np
import pytest
from chromadb.config import Settings

from memory.errors import EmbedderMismatch, IndexCorrupt
from memory.indexes.chroma import EF_SEARCH, ChromaIndex, similarity
from memory.indexes.exact import ExactIndex
from memory.protocols import Vector

DIM = 64


def clustered(n: int, seed: int) -> Vector:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n // 20, DIM))
    vectors = centres[rng.integers(len(centres), size=n)] + 0.4 * rng.normal(size=(n, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def index(tmp_path: Path) -> ChromaIndex:
    made = ChromaIndex(tmp_path / "index", model="m1", dim=DIM)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("distance", "cosine"), [(0.0, 1.0), (1.0, 0.0), (2.0, -1.0), (-1e-7, 1.0), (2.0000002, -1.0), (0.25, 0.75)]
)
def test_distance_becomes_similarity(distance: float, cosine: float) -> None:
    assert similarity(distance) == cosine


def test_space_search_width_and_no_embedding_function_are_written_down(index: ChromaIndex, tmp_path: Path) -> None:
    index.upsert("ns/fact", ["a"], clustered(20, 0)[:1])
    index.close()
    client = chromadb.PersistentClient(str(tmp_path / "index"), settings=Settings(anonymized_telemetry=False))
    (made,) = client.list_collections()
    hnsw = made.configuration_json["hnsw"]
    assert hnsw["space"] == "cosine"
    assert hnsw["ef_search"] == EF_SEARCH >= 200
    assert (hnsw["ef_construction"], hnsw["max_neighbors"]) == (200, 32), "with others, recall was not measured"
    assert made.configuration_json["embedding_function"] == {"type": "legacy"}
    assert made.metadata == {"model": "m1", "dim": DIM, "normalised": True, "collection": "ns/fact"}
    client.close()
    again = ChromaIndex(tmp_path / "index", model="m1", dim=DIM)
    assert again._collection("ns/fact")._embedding_function is None
    assert again._client.get_settings().anonymized_telemetry is False, "nothing is sent to anybody"
    again.close()


@pytest.mark.parametrize(("model", "dim"), [("m2", DIM), ("m1", 32)])
def test_another_embedder_is_refused_with_the_command_that_helps(
    index: ChromaIndex, tmp_path: Path, model: str, dim: int
) -> None:
    index.upsert("ns/fact", ["a"], clustered(20, 0)[:1])
    other = ChromaIndex(tmp_path / "index", model=model, dim=dim)
    with pytest.raises(EmbedderMismatch, match="evolve memory reindex"):
        other.count("ns/fact")
    other.close()


def test_neighbours_are_found_among_clusters(index: ChromaIndex) -> None:
    """Recall@10 against exact search; Chroma's own defaults reached 0.86 on data like this."""
    n = 3000
    vectors, ids, exact = clustered(n, 1), [f"{i:05d}" for i in range(n)], ExactIndex()
    index.upsert("c", ids, vectors)
    exact.upsert("c", ids, vectors)
    found = 0
    for query in clustered(n, 1)[::30]:
        truth = {key for key, _ in exact.search("c", query, 10)}
        found += len(truth & {key for key, _ in index.search("c", query, 10)})
    assert found / (10 * n / 30) >= 0.98


def test_more_rows_than_one_call_takes_and_more_neighbours_than_the_search_width(index: ChromaIndex) -> None:
    n = index._batch + 10
    vectors = np.eye(DIM, dtype=np.float32)[np.arange(n) % DIM]
    index.upsert("c", [f"{i:05d}" for i in range(n)], vectors)
    assert index.count("c") == n
    assert len(index.search("c", vectors[0], 3 * EF_SEARCH)) == 3 * EF_SEARCH


def test_what_was_written_is_there_after_reopening(index: ChromaIndex, tmp_path: Path) -> None:
    vectors = clustered(60, 3)
    index.upsert("ns/fact", [f"{i:02d}" for i in range(60)], vectors)
    index.close()
    again = ChromaIndex(tmp_path / "index", model="m1", dim=DIM)
    assert again.collections() == ["ns/fact"]
    assert again.ids("ns/fact") == [f"{i:02d}" for i in range(60)]
    assert again.search("ns/fact", vectors[7], 1)[0][0] == "07"
    again.close()


def test_a_failed_open_does_not_poison_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "chroma.sqlite3").write_bytes(b"no database" * 500)
    with pytest.raises(IndexCorrupt, match="SQLite holds every vector"):
        ChromaIndex(folder, model="m1", dim=DIM)
    folder.rename(tmp_path / "moved")
    fresh = ChromaIndex(folder, model="m1", dim=DIM)
    fresh.upsert("c", ["a"], clustered(20, 0)[:1])
    assert fresh.count("c") == 1
    fresh.close()


def test_a_collection_that_is_gone_from_the_files_is_a_corrupt_index(index: ChromaIndex, tmp_path: Path) -> None:
    vectors = clustered(20, 0)
    index.upsert("ns/fact", ["a", "b"], vectors[:2])
    client = chromadb.PersistentClient(str(tmp_path / "index"), settings=Settings(anonymized_telemetry=False))
    client.delete_collection(client.list_collections()[0].name)
    calls: list[Callable[[], object]] = [
        lambda: index.upsert("ns/fact", ["c"], vectors[2:3]),
        lambda: index.remove("ns/fact", ["a"]),
        lambda: index.search("ns/fact", vectors[0], 1),
        lambda: index.count("ns/fact"),
        lambda: index.ids("ns/fact"),
    ]
    for call in calls:
        with pytest.raises(IndexCorrupt, match="run `evolve memory doctor` to rebuild"):
            call()
    client.close()


def test_files_that_break_while_they_are_open_are_a_corrupt_index(index: ChromaIndex, tmp_path: Path) -> None:
    index.upsert("ns/fact", ["a"], clustered(20, 0)[:1])
    with closing(sqlite3.connect(tmp_path / "index" / "chroma.sqlite3")) as conn:
        conn.execute("DROP TABLE collection_metadata")
        conn.commit()
    with pytest.raises(IndexCorrupt, match="nothing is lost"):
        index.count("ns/other")
