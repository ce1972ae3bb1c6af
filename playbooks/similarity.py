"""Rules that say the same: exactly, nearly (TF-IDF cosine), or only seemingly (they differ in one value).

Deterministic, and no model is asked. Short rules that differ by a substituted word ("cents" for "dollars") are near in
every bag-of-words measure and yet contradict each other: they are not duplicates here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

THRESHOLD = 0.9
SHORT_WORDS = 30
"""Up to this many words a substituted word counts as another value; longer texts are paraphrases of each other."""

SAME_START = 3
"""Words that two texts must share at their start to be about the same thing."""
TAIL = 3
"""Words that may follow, at most, where two such texts oppose each other."""
_ORDER = ("must", "come")
_NOTHING = frozenset({"nothing", "none", "nobody"})
_WORD = re.compile(r"\w\w")
_CHUNK = 512
_PAIRS = 100_000
"""Pairs whose cosine is computed at a time."""
_MARGIN = 1e-6
"""For rounding."""
NEGATIONS = frozenset({"not", "never", "no", "don't", "cannot", "without", "unless", "except", "avoid"})
# fmt: off
_FILLERS = frozenset({
    "a", "an", "the", "is", "are", "be", "been", "to", "of", "in", "on", "for", "with", "and", "or", "that",
    "this", "it", "its", "as", "at", "by", "you", "must", "should", "always", "please", "make", "sure",
    "when", "if", "then", "use", "using", "used", "need", "needs", "have", "has", "will", "can", "all", "any",
})
# fmt: on


def exact_key(text: str) -> str:
    """Return what two exact duplicates share: the text with its blank space evened out and no final full stop."""
    return " ".join(text.split()).rstrip(".")


def contradicts(a: str, b: str) -> bool:
    """Return True when two similar short texts differ in a value, or one negates the other."""
    words_a, words_b = words(a), words(b)
    only_a, only_b = words_a - words_b, words_b - words_a
    if (only_a | only_b) & NEGATIONS:
        return True
    if max(len(a.split()), len(b.split())) > SHORT_WORDS:
        return False
    if not only_a and not only_b:
        return values(a) != values(b)
    return bool(only_a - _FILLERS) and bool(only_b - _FILLERS)


def opposes(a: str, b: str) -> bool:
    """Return True when two short texts begin alike and end in another value: `send: amount must be cents | dollars`.

    Two things that must come before (or after) the same call do not exclude each other, unless one of them is nothing.
    """
    first, second = values(a), values(b)
    same = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), len(first))
    if tuple(first[same - 2 : same]) == _ORDER and not {*first[same:], *second[same:]} & _NOTHING:
        return False
    tails = (len(first) - same, len(second) - same)
    return same >= SAME_START and min(tails) > 0 and max(tails) <= TAIL and contradicts(a, b)


def similar_pairs(texts: Sequence[str], threshold: float = THRESHOLD) -> list[tuple[int, int, float]]:
    """Return (i, j, cosine) with i < j for every pair of texts at or above `threshold`, best first.

    TF-IDF as scikit-learn's `TfidfVectorizer` makes it by default, fitted on `texts`. Contradictions are left out. Only
    texts that share one of their rarest words are compared (`_telling`): words that all texts have tell nothing.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    if len(texts) < 2 or not any(map(_WORD.search, texts)):
        return []
    vectors = TfidfVectorizer().fit_transform(texts).tocsr()
    telling, having = _telling(vectors, threshold), (vectors != 0).T.tocsr()
    near: list[tuple[int, int, float]] = []
    for start in range(0, len(texts), _CHUNK):
        shared = (telling[start : start + _CHUNK] @ having).tocoo()
        later = shared.row + start < shared.col
        rows, columns = shared.row[later] + start, shared.col[later]
        for at in range(0, len(rows), _PAIRS):
            one, other = rows[at : at + _PAIRS], columns[at : at + _PAIRS]
            cosine = vectors[one].multiply(vectors[other]).sum(axis=1).A1
            high = cosine >= threshold - 1e-9
            found = zip(one[high], other[high], cosine[high], strict=True)
            near += [(int(i), int(j), round(float(score), 6)) for i, j, score in found]
    pairs = [pair for pair in near if not contradicts(texts[pair[0]], texts[pair[1]])]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))


def _telling(vectors: Any, threshold: float) -> Any:
    """Return which words of each text another one must share some of to be near it, as a matrix of ones.

    The length of a text's vector is 1. What is left of it without its rarest words is shorter than `threshold`, and so
    is its product with any vector that has none of them (Cauchy-Schwarz; prefix filtering, Bayardo et al., WWW 2007).
    """
    import numpy as np
    from scipy.sparse import csr_matrix

    sizes = np.diff(vectors.indptr)
    texts = np.repeat(np.arange(len(sizes)), sizes)
    common = np.bincount(vectors.indices, minlength=vectors.shape[1])
    order = np.lexsort((common[vectors.indices], texts))  # of each text the rarest word first
    squares = vectors.data[order] ** 2
    before = np.cumsum(squares) - squares
    totals = np.append(np.cumsum(squares), 0.0)[vectors.indptr[1:] - 1]
    left = np.repeat(totals, sizes) - before
    kept = order[left >= max(threshold - _MARGIN, 0.0) ** 2]
    ones = np.ones(len(kept), dtype=np.int32)
    return csr_matrix((ones, (texts[kept], vectors.indices[kept])), shape=vectors.shape)


@lru_cache(maxsize=32768)
def words(text: str) -> frozenset[str]:
    """Return the words of a text, without punctuation; capitals at a word's start are not told apart, ID and id are."""
    return frozenset(_fold(word) for word in values(text))


@lru_cache(maxsize=32768)
def values(text: str) -> tuple[str, ...]:
    """Return the words of a text as `words` does, in order and with repetitions."""
    stripped = (word.strip(".,:;!?()[]{}\"'`") for word in text.split())
    return tuple(_fold(word) for word in stripped if word)


def _fold(word: str) -> str:
    return word.lower() if word.istitle() or word.islower() else word
