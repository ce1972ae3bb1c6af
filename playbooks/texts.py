"""Many texts kept so that one more can be compared with all of them in time that hardly grows with their number.

Exact duplicates by key, near ones through an inverted index of words and the TF-IDF cosine of the few candidates left,
contradictions through the texts' first words. Agrees with scikit-learn's `TfidfVectorizer` fitted on all texts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

from playbooks.similarity import SAME_START, THRESHOLD, contradicts, exact_key, opposes, values, words

_TERM = re.compile(r"(?u)\b\w\w+\b")
_OVERLAP = 0.4
"""Least share of common words (Dice) that a pair above the threshold can be expected to have."""


class TextIndex:
    """Texts by key, in order of insertion."""

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        self._texts: dict[str, str] = {}
        self._order: dict[str, int] = {}
        self._next = 0
        self._exact: dict[str, dict[str, None]] = {}
        self._starts: dict[tuple[str, ...], dict[str, None]] = {}
        self._words: dict[str, dict[str, None]] = {}
        self._frequency: Counter[str] = Counter()
        for key, text in items:
            self.add(key, text)

    def add(self, key: str, text: str) -> None:
        """Take in a text; a key that is known is replaced."""
        self.remove(key)
        self._texts[key] = text
        self._order[key] = self._next
        self._next += 1
        for keys in self._entries(text):
            keys[key] = None
        self._frequency.update(_terms(text).keys())

    def remove(self, key: str) -> None:
        """Forget a key; an unknown one is ignored."""
        text = self._texts.pop(key, None)
        if text is None:
            return
        for keys in self._entries(text):
            del keys[key]
        self._frequency.subtract(_terms(text).keys())

    def text(self, key: str) -> str:
        """Return the text of a key."""
        return self._texts[key]

    def duplicate_of(
        self, text: str, *, threshold: float = THRESHOLD, skip: Collection[str] = ()
    ) -> tuple[str, float] | None:
        """Return (key, cosine) of the text that says the same, the best and earliest one outside `skip`; else None.

        An exact duplicate has cosine 1.0. Texts that contradict are no duplicates.
        """
        exact = next((key for key in self._exact.get(exact_key(text), ()) if key not in skip), None)
        if exact is not None:
            return exact, 1.0
        best: tuple[str, float] | None = None
        for key in self._candidates(text):
            if key in skip or contradicts(text, self._texts[key]):
                continue
            cosine = self._cosine(text, self._texts[key])
            if cosine >= threshold - 1e-9 and (best is None or cosine > best[1]):
                best = key, cosine
        return best

    def opposed_to(self, text: str) -> list[str]:
        """Return the keys of the texts that begin alike and end in another value (`similarity.opposes`)."""
        return [key for key in self._starts.get(values(text)[:SAME_START], ()) if opposes(text, self._texts[key])]

    def _entries(self, text: str) -> Iterator[dict[str, None]]:
        """Yield the set of keys at each entry of the text, made where it is missing."""
        yield self._exact.setdefault(exact_key(text), {})
        yield self._starts.setdefault(values(text)[:SAME_START], {})
        for word in words(text):
            yield self._words.setdefault(word, {})

    def _candidates(self, text: str) -> list[str]:
        """Return the keys of the texts that share enough words, in order of insertion."""
        wanted = words(text)
        shared: Counter[str] = Counter()
        for word in wanted:
            shared.update(self._words.get(word, {}).keys())
        return sorted(
            (key for key, n in shared.items() if 2 * n >= _OVERLAP * (len(wanted) + len(words(self._texts[key])))),
            key=self._order.__getitem__,
        )

    def _cosine(self, a: str, b: str) -> float:
        """Return the TF-IDF cosine of two texts, with the weights of all texts and of `a` itself as one more."""
        total = len(self._texts) + 1
        first, second = _terms(a), _terms(b)

        def weight(term: str) -> float:
            return math.log((1 + total) / (1 + self._frequency[term] + (term in first))) + 1

        dot = sum(count * second[term] * weight(term) ** 2 for term, count in first.items() if term in second)
        norms = [math.sqrt(sum((count * weight(term)) ** 2 for term, count in t.items())) for t in (first, second)]
        return round(dot / (norms[0] * norms[1]), 6) if dot else 0.0


@lru_cache(maxsize=32768)
def _terms(text: str) -> Counter[str]:
    return Counter(_TERM.findall(text.lower()))
