"""Corpora of recall: the live records of a namespace, or those of a snapshot as they were.

Both answer the same three questions (which records hold these words, which vectors are near, what is known about these
candidates), so that recall is written once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np

from memory.catalogue import Candidate, Catalogue, Known
from memory.indexes.exact import ExactIndex
from memory.journal import Journal
from memory.lexical import WordSearch, WordSearches
from memory.live_index import LiveIndex
from memory.protocols import Vector
from memory.records import Record
from memory.snapshots import frozen
from memory.sqlite.fts_words import texts_in_memory
from memory.vectors import from_blobs
from memory.view import Reader

Admitted = tuple[list[Candidate], Vector]
"""Candidates and their vectors `(n, dim)`, row by row."""
Hits = tuple[dict[str, float], bool]
"""Scores by record id, and whether a larger limit might find more."""


class Corpus(Protocol):
    """Records that can be recalled."""

    def lexical(self, words: Sequence[str], limit: int) -> Hits:
        """Return BM25 (higher is better) of up to `limit` records that hold a word."""
        ...

    def nearest(self, vector: Vector, limit: int) -> Hits:
        """Return the cosine of up to `limit` records of each kind."""
        ...

    def admit(self, ids: Sequence[str], without_tasks: Sequence[str]) -> Admitted:
        """Return those that may be shown: recallable, not forgotten, not derived from one of the tasks."""
        ...

    def records(self, ids: Sequence[str]) -> list[Record[Any]]:
        """Return parsed records in the order of `ids`."""
        ...


@dataclass(frozen=True)
class Sources:
    """Where live records are read."""

    journal: Journal
    reader: Reader
    index: LiveIndex
    words: WordSearches
    catalogue: Catalogue
    dim: int


@dataclass(frozen=True)
class LiveCorpus:
    """The records of some kinds of a namespace as of the last commit."""

    sources: Sources
    namespace: str
    kinds: Sequence[str]

    @cached_property
    def _known(self) -> Known:
        return self.sources.catalogue.of(self.namespace)

    def lexical(self, words: Sequence[str], limit: int) -> Hits:
        journal = self.sources.journal
        with journal.lock, journal.engine.errors():
            ((latest, version, several),) = journal.query(
                "SELECT (SELECT max(seq) FROM records),"
                " (SELECT version FROM namespaces WHERE namespace = ?), count(*) > 1 FROM namespaces",
                (self.namespace,),
            )
            if several:  # what others change does not count
                rows, scores = self.sources.words.of(self.namespace).best(words, version)
            else:
                rows, scores = self.sources.words.of(None).best(words, latest)
        known = self._known.by_row
        found: dict[str, float] = {}
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
            candidate = known.get(row)
            if candidate is not None and candidate.kind in self.kinds:
                found[candidate.id] = score
                if len(found) == limit:
                    return found, True
        return found, False

    def nearest(self, vector: Vector, limit: int) -> Hits:
        found: dict[str, float] = {}
        more = False
        for kind in sorted(self._known.kinds.intersection(self.kinds)):
            near = self.sources.index.search(self.namespace, kind, vector, limit)
            more = more or len(near) == limit
            found.update(near)
        return found, more

    def admit(self, ids: Sequence[str], without_tasks: Sequence[str]) -> Admitted:
        known = self._known.by_id
        barred = _drawn_from(self.sources.journal, without_tasks)
        found = [each for key in ids if key not in barred and (each := known.get(key)) is not None]
        vectors = self.sources.index.blobs.vectors([(each.id, each.version) for each in found])
        pairs = [(each, vector) for each, vector in zip(found, vectors, strict=True) if vector is not None]
        return [each for each, _ in pairs], _matrix([vector for _, vector in pairs], self.sources.dim)

    def records(self, ids: Sequence[str]) -> list[Record[Any]]:
        known = self._known.by_id
        return self.sources.reader.at([(key, each.seq) for key in ids if (each := known.get(key)) is not None])


def _matrix(vectors: Sequence[Vector], dim: int) -> Vector:
    return np.concatenate(vectors).reshape(len(vectors), dim) if vectors else np.empty((0, dim), np.float32)


def _drawn_from(journal: Journal, tasks: Sequence[str]) -> set[str]:
    """Return the ids of records of which any version was derived from one of the tasks."""
    if not tasks:
        return set()
    rows = journal.query(
        "SELECT t.record_id FROM json_each(?) j JOIN record_tasks t ON t.task_id = j.value", (json.dumps(list(tasks)),)
    )
    return {row[0] for row in rows}


class FrozenCorpus:
    """A snapshot: payloads, usage and vectors as they were, word statistics of its own, exact search."""

    def __init__(self, journal: Journal, name: str, *, dim: int) -> None:
        """Read a whole snapshot into memory. Raises `NotFound`."""
        self._journal = journal
        self._records = {record.id: record for record in frozen(journal, name)}
        self._by_number = {record.number: record for record in self._records.values()}
        self._dim = dim
        self._vectors = self._read_vectors(dim)
        self._index = ExactIndex()
        for kind in {record.kind for record in self._records.values()}:
            ids = [key for key, record in self._records.items() if record.kind == kind and key in self._vectors]
            self._index.upsert(kind, ids, _matrix([self._vectors[key] for key in ids], dim))
        texts = [(record.number, record.payload.text()) for record in self._records.values()]
        self._words = WordSearch(texts_in_memory(texts))
        self._lock = Lock()

    def _read_vectors(self, dim: int) -> dict[str, Vector]:
        rows = self._journal.query(
            "SELECT e.record_id, e.vector FROM json_each(?) j JOIN embeddings e ON e.record_id = j.value ->> 0"
            " AND e.version = CAST(j.value ->> 1 AS INTEGER)",
            (json.dumps([(record.id, record.version) for record in self._records.values()]),),
        )
        return dict(zip((row[0] for row in rows), from_blobs([row[1] for row in rows], dim), strict=True))

    def of(self, kinds: Sequence[str]) -> FrozenView:
        """Return some kinds of the snapshot."""
        return FrozenView(self, kinds)

    def lexical(self, words: Sequence[str], limit: int) -> list[tuple[Record[Any], float]]:
        """Return up to `limit` (record, BM25) of any kind."""
        with self._lock:
            rows, scores = self._words.best(words, "frozen")
        best = zip(rows[:limit].tolist(), scores[:limit].tolist(), strict=True)
        return [(self._by_number[number], score) for number, score in best]

    def nearest(self, kind: str, vector: Vector, limit: int) -> list[tuple[str, float]]:
        """Return up to `limit` (id, cosine) of one kind."""
        return self._index.search(kind, vector, limit)

    def admit(self, ids: Sequence[str], without_tasks: Sequence[str]) -> Admitted:
        """Return those not forgotten since and not derived from one of the tasks."""
        rows = self._journal.query(
            "SELECT r.id FROM json_each(?) j JOIN records r ON r.id = j.value WHERE r.forgotten = 0",
            (json.dumps(list(ids)),),
        )
        barred = _drawn_from(self._journal, without_tasks)
        known = [self._records[row[0]] for row in rows if row[0] in self._vectors and row[0] not in barred]
        vectors = [self._vectors[record.id] for record in known]
        found = [
            Candidate(record.id, record.kind, record.number, record.version, 0, record.usage.utility)
            for record in known
        ]
        return found, _matrix(vectors, self._dim)

    def record(self, record_id: str) -> Record[Any]:
        """Return a record as it was."""
        return self._records[record_id]


@dataclass(frozen=True)
class FrozenView:
    """Some kinds of a snapshot, as a `Corpus`."""

    frozen: FrozenCorpus
    kinds: Sequence[str]

    def lexical(self, words: Sequence[str], limit: int) -> Hits:
        found = self.frozen.lexical(words, limit)
        return {record.id: score for record, score in found if record.kind in self.kinds}, len(found) == limit

    def nearest(self, vector: Vector, limit: int) -> Hits:
        near = [self.frozen.nearest(kind, vector, limit) for kind in self.kinds]
        return {key: cosine for hits in near for key, cosine in hits}, any(len(hits) == limit for hits in near)

    def admit(self, ids: Sequence[str], without_tasks: Sequence[str]) -> Admitted:
        return self.frozen.admit(ids, without_tasks)

    def records(self, ids: Sequence[str]) -> list[Record[Any]]:
        return [self.frozen.record(key) for key in ids]
