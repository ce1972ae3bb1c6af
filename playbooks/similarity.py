"""When two rules say the same: exactly, nearly (TF-IDF cosine), or only seemingly (they differ in one value).

Deterministic, and no model is asked. Short rules that differ by a substituted word ("cents" for "dollars") are near in
every bag-of-words measure and yet contradict each other: they are not duplicates here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

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

    TF-IDF as scikit-learn's `TfidfVectorizer` makes it by default, fitted on `texts`. Contradictions are left out.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    if len(texts) < 2 or not any(map(_WORD.search, texts)):
        return []
    vectors = TfidfVectorizer().fit_transform(texts).tocsr()
    near: list[tuple[int, int, float]] = []
    for start in range(0, len(texts), _CHUNK):
        cosine = (vectors[start : start + _CHUNK] @ vectors.T).tocoo()
        high = cosine.data >= threshold - 1e-9
        found = zip(cosine.row[high] + start, cosine.col[high], cosine.data[high], strict=True)
        near += [(int(i), int(j), round(float(score), 6)) for i, j, score in found if i < j]
    pairs = [pair for pair in near if not contradicts(texts[pair[0]], texts[pair[1]])]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))


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
