"""Recall: which records help with this text? Words, vectors and measured utility, fused, diversified, within a budget.

Every returned record carries the parts of its score, so that what entered a prompt can be explained later. An empty
answer is an answer. Nothing here changes knowledge or counts usage.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.catalogue import Candidate, Catalogue
from memory.corpus import Corpus, FrozenCorpus, LiveCorpus, Sources
from memory.errors import BadInput, NotFound
from memory.fusion import Scores, diversify, reciprocal_ranks, within_budget
from memory.journal import Journal
from memory.kinds import known_kinds
from memory.lexical import WordSearches, query_words
from memory.live_index import LiveIndex
from memory.protocols import Embedder, Vector
from memory.records import Recalled, RecallQuery, Record
from memory.view import Reader

UTILITY_WEIGHT = 0.5
"""Against 1 for words and for vectors: what helped before breaks near-ties and never replaces relevance."""
_POOL = 3
"""Candidates asked of each side, per record wanted."""
_SMALLEST_POOL = 64
_FROZEN_KEPT = 4
_TOKENS_KEPT = 50_000


@dataclass(frozen=True)
class Pool:
    """Candidates with the parts of their scores, entry by entry."""

    candidates: list[Candidate]
    vectors: Vector
    lexical: Scores
    """BM25; NaN where the record shares no word with the query."""
    cosine: Scores

    def only(self, rows: NDArray[np.intp]) -> Pool:
        """Return some of it, in the order of `rows`."""
        candidates = [self.candidates[row] for row in rows]
        return Pool(candidates, self.vectors[rows], self.lexical[rows], self.cosine[rows])

    def parts(self, fused: Scores) -> list[dict[str, float]]:
        """Return each candidate's score parts as they are logged."""
        return [
            {
                "lexical": round(lexical, 6),
                "vector": cosine,
                "utility": round(candidate.utility, 6),
                "rrf": round(rrf, 6),
            }
            for lexical, cosine, candidate, rrf in zip(
                np.nan_to_num(self.lexical).tolist(),
                self.cosine.tolist(),
                self.candidates,
                fused.tolist(),
                strict=True,
            )
        ]


class Recaller:
    """Answers `RecallQuery`s for one open store; keeps snapshots and token counts it has seen. Safe between threads."""

    def __init__(
        self, journal: Journal, reader: Reader, embedder: Embedder, index: LiveIndex, count_tokens: Callable[[str], int]
    ) -> None:
        self._journal, self._embedder, self._count_tokens = journal, embedder, count_tokens
        self._sources = Sources(journal, reader, index, WordSearches(journal.words), Catalogue(journal), embedder.dim)
        self._frozen: OrderedDict[str, FrozenCorpus] = OrderedDict()
        self._tokens: OrderedDict[str, int] = OrderedDict()

    def recall(self, query: RecallQuery) -> tuple[Recalled, ...]:
        """Return up to `query.k` records, best first, never more tokens than the budget.

        Score parts: `lexical` BM25 (0 = no word in common), `vector` cosine, `utility` Laplace estimate, `rrf` their
        fusion. A record that only the vector side found needs a cosine of at least `min_score`. Raises `NotFound` for
        an unknown snapshot, `BadInput` for an impossible query.
        """
        _check(query)
        if query.k == 0 or not query.text.strip():
            return ()
        corpus = self._corpus(query)
        vector = self._embedder.embed([query.text])[0]
        pool = _gather(corpus, query, vector)
        fused = reciprocal_ranks(
            [
                (pool.lexical, 1.0),
                (pool.cosine, 1.0),
                (np.array([candidate.utility for candidate in pool.candidates]), UTILITY_WEIGHT),
            ]
        )
        numbers = np.array([candidate.number for candidate in pool.candidates])
        best = np.lexsort((numbers, -fused))[: _pool_size(query)]
        order = diversify(fused[best], pool.vectors[best], k=query.k, trade=query.mmr_lambda)
        chosen = best[order]
        return self._present(corpus, pool.only(chosen), fused[chosen], query.token_budget)

    def _corpus(self, query: RecallQuery) -> Corpus:
        kinds = query.kinds or known_kinds()
        if query.snapshot_id is None:
            return LiveCorpus(self._sources, query.namespace, kinds)
        name = self._freeze_name(query.snapshot_id, query.namespace)
        with self._journal.lock:
            corpus = self._frozen.get(name)
            if corpus is None:
                corpus = self._frozen[name] = FrozenCorpus(self._journal, name, dim=self._embedder.dim)
                while len(self._frozen) > _FROZEN_KEPT:
                    self._frozen.popitem(last=False)
            self._frozen.move_to_end(name)
        return corpus.of(kinds)

    def _freeze_name(self, snapshot: str, namespace: str) -> str:
        """Return `<id>@<position>`, so that a name that means `the latest freeze` is never read from an older one."""
        name, _, position = snapshot.partition("@")
        ((owner, latest),) = self._journal.query(
            "SELECT min(namespace), max(position) FROM snapshots WHERE id = ?", (name,)
        )
        if owner is None:
            raise NotFound(f"no snapshot {snapshot!r}; list those there are with `evolve playbook log`")
        if owner != namespace:
            raise NotFound(f"snapshot {snapshot!r} belongs to namespace {owner!r}, not to {namespace!r}")
        return f"{name}@{position or latest}"

    def _present(self, corpus: Corpus, chosen: Pool, fused: Scores, budget: int | None) -> tuple[Recalled, ...]:
        found = {record.id: record for record in corpus.records([candidate.id for candidate in chosen.candidates])}
        scored = zip(chosen.candidates, chosen.parts(fused), strict=True)
        shown = [(found[each.id], parts) for each, parts in scored if each.id in found]
        tokens = [self._cost(record) for record, _ in shown]
        kept = [(*shown[position], tokens[position]) for position in within_budget(tokens, budget)]
        return tuple(
            Recalled.model_construct(record=record, rank=rank, scores=parts, tokens=cost)
            for rank, (record, parts, cost) in enumerate(kept, start=1)
        )

    def _cost(self, record: Record[Any]) -> int:
        cost = self._tokens.get(record.content_hash)
        if cost is None:
            cost = self._tokens[record.content_hash] = self._count_tokens(record.payload.text())
            if len(self._tokens) > _TOKENS_KEPT:
                self._tokens.popitem(last=False)
        return cost


def _check(query: RecallQuery) -> None:
    if query.k < 0 or not 0.0 <= query.mmr_lambda <= 1.0 or not -1.0 <= query.min_score <= 1.0:
        raise BadInput(
            f"got k={query.k!r}, mmr_lambda={query.mmr_lambda!r}, min_score={query.min_score!r}; expected k >= 0, "
            "mmr_lambda in [0, 1], min_score in [-1, 1]"
        )


def _pool_size(query: RecallQuery) -> int:
    return max(_POOL * query.k, _SMALLEST_POOL)


def _gather(corpus: Corpus, query: RecallQuery, vector: Vector) -> Pool:
    """Return every candidate that may be shown, asking for more as long as filters leave fewer than wanted."""
    words = query_words(query.text)
    limit = _pool_size(query)
    while True:
        lexical, more_words = corpus.lexical(words, limit)
        nearest, more_near = corpus.nearest(vector, limit)
        found = (lexical.keys() | nearest.keys()) - set(query.exclude_ids)
        candidates, vectors = corpus.admit(sorted(found), query.exclude_task_ids)
        scores = np.array([lexical.get(candidate.id, np.nan) for candidate in candidates])
        cosine = np.round((vectors @ vector).astype(np.float64), 6)
        passing = np.flatnonzero(~np.isnan(scores) | (cosine >= query.min_score))
        if len(passing) >= query.k or not (more_words or (more_near and _may_pass(nearest, query.min_score))):
            return Pool(candidates, vectors, scores, cosine).only(passing)
        limit *= 8


def _may_pass(nearest: dict[str, float], floor: float) -> bool:
    """Return whether a vector further away than these could still pass the floor."""
    return min(nearest.values(), default=1.0) >= floor
