"""The probe that looks for known vectors: what counts as found, which are sought, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from memory import outbox
from memory.embedders.hashing import HashingEmbedder
from memory.health import _NEAR, _found, look, main, probe, quarantine
from memory.indexes.chroma import ChromaIndex
from memory.indexes.exact import ExactIndex
from memory.protocols import Vector
from memory.records import DeltaOp, Op
from memory.store import Store
from memory.vectors import to_blob

DIM = 16
EMBEDDER = HashingEmbedder()
MODEL = EMBEDDER.model


def unit(*parts: float) -> Vector:
    vector = np.zeros(DIM, dtype=np.float32)
    vector[: len(parts)] = parts
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ([("a", unit(1))], True),
        ([("a", unit(0, 1))], False),
        ([("b", unit(1))], False),
        ([(f"b{at:02}", unit(1)) for at in range(_NEAR)], True),
        ([(f"b{at:02}", unit(1)) for at in range(_NEAR - 1)], False),
        ([(f"b{at:02}", unit(1, 0.1)) for at in range(_NEAR)], False),
        ([("a", unit(1, 0.03))], True),
        ([("a", unit(1, 0.06))], False),
    ],
    ids=["there", "moved", "gone", "among more equals than fit", "equals fit", "near is not equal", "rounded", "off"],
)
def test_a_vector_is_found_under_its_id_or_lost_among_its_equals(stored: list[tuple[str, Vector]], found: bool) -> None:
    index = ExactIndex()
    index.upsert("ns/fact", [key for key, _ in stored], np.array([vector for _, vector in stored]))
    assert _found(index, "ns/fact", "a", to_blob(unit(1)), DIM) is found


@pytest.fixture
def indexed(store: Store, add: Callable[..., DeltaOp], tmp_path: Path) -> Iterator[tuple[Store, ChromaIndex]]:
    """Twenty-five records and a Chroma directory that holds them."""
    store.commit("default", [add(f"rule number {at}") for at in range(25)], actor="t")
    index = ChromaIndex(tmp_path / "index", model=MODEL, dim=EMBEDDER.dim)
    outbox.drain(store.journal, index, dim=EMBEDDER.dim)
    yield store, index
    index.close()


def wrong(store: Store) -> str:
    return look(store.journal.path.parent / "index", store.journal, model=MODEL, dim=EMBEDDER.dim)


def test_a_sound_index_has_nothing_wrong_and_a_child_process_says_so(
    indexed: tuple[Store, ChromaIndex], capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = indexed
    assert wrong(store) == ""
    path = store.journal.path
    assert main([str(path.parent / "index"), str(path), MODEL, str(EMBEDDER.dim)]) == 0
    assert json.loads(capsys.readouterr().out) == {"wrong": ""}
    assert probe(path.parent / "index", path, model=MODEL, dim=EMBEDDER.dim) == ""


def test_vectors_that_stand_elsewhere_are_counted_among_twenty(indexed: tuple[Store, ChromaIndex]) -> None:
    store, index = indexed
    ids = [record.id for record in store.view("default").records()]
    index.upsert("default/fact", ids, EMBEDDER.embed([f"another text {at}" for at in range(len(ids))]))
    assert wrong(store) == "20 of 20 known vectors are not found by their own query"


def test_only_what_the_index_should_hold_and_does_is_looked_for(indexed: tuple[Store, ChromaIndex]) -> None:
    """Left are five: the rest is gone from the index, retired, forgotten, or waits to be carried there."""
    store, index = indexed
    ids = [record.id for record in store.view("default").records()]
    index.upsert("default/fact", ids, EMBEDDER.embed([f"another text {at}" for at in range(len(ids))]))
    index.remove("default/fact", ids[:12])
    store.commit("default", [DeltaOp(op=Op.REMOVE, target_id=key) for key in ids[12:14]], actor="t")
    for key in ids[14:16]:
        store.forget(key)
    store.db.execute("DELETE FROM outbox")
    for at, key in enumerate(ids[16:20]):
        edit = DeltaOp(op=Op.EDIT, kind="fact", target_id=key, payload={"content": f"edited {at}"})
        store.commit("default", [edit], actor="t")
    assert wrong(store) == "5 of 5 known vectors are not found by their own query"


def test_what_keeps_an_index_from_being_read_is_what_is_wrong(indexed: tuple[Store, ChromaIndex]) -> None:
    store, _ = indexed
    folder = store.journal.path.parent
    said = look(folder / "index", store.journal, model="another", dim=EMBEDDER.dim)
    assert "run `evolve memory reindex`" in said
    said = probe(folder / "index", folder / "empty" / "evolve.db", model=MODEL, dim=EMBEDDER.dim)
    assert said.startswith("the probe failed: memory.errors.NotFound: no workspace database at")


def test_a_directory_is_moved_aside_under_a_name_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    assert quarantine(folder) is None
    for _ in range(2):
        folder.mkdir()
        moved = quarantine(folder)
        assert moved is not None
        assert (moved.is_dir(), folder.exists()) == (True, False)
    assert len(list(tmp_path.glob("index.quarantine-*"))) == 2
