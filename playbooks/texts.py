"""Many texts kept so that one more can be compared with all of them in time that hardly grows with their number.

Exact duplicates by key, near ones through the few texts that share one of the terms that tell them apart, opposed ones
through the texts' first words. Cosines are those of scikit-learn's `TfidfVectorizer` fitted on all texts.

The texts of a view are kept with it (`texts_of`): for the next view of the namespace only what changed is read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TypeVar

from memory.protocols import KnowledgeView
from playbooks.similarity import SAME_START, THRESHOLD, contradicts, exact_key, opposes, values
from playbooks.view import kept_here

_K = TypeVar("_K")
_TERM = re.compile(r"(?u)\b\w\w+\b")
_MARGIN = 1e-5
"""For rounding: a cosine has six digits."""


def texts_of(view: KnowledgeView, kind: str) -> TextIndex:
    """Return the texts by which records of a kind are the same (`Payload.compared`), by record id.

    Each thread has one of its own. It is good until it is asked for again: then it holds what that view holds, whatever
    was added to it or removed. So nobody keeps it over an `await`.
    """
    records = view.records(kind)
    index: TextIndex = kept_here(view, "texts").setdefault(kind, TextIndex())
    if index.source is not records:
        index.become((record.id, record.payload.compared()) for record in records)
        index.source = records
    return index


class TextIndex:
    """Texts by key, in order of insertion."""

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        self.source: object = None
        """What it was made of; None as soon as it was changed."""
        self._texts: dict[str, str] = {}
        self._order: dict[str, int] = {}
        self._next = 0
        self._exact: dict[str, set[str]] = {}
        self._starts: dict[tuple[str, ...], set[str]] = {}
        self._having: dict[str, set[str]] = {}
        """Term -> the keys of the texts that hold it."""
        for key, text in items:
            self.add(key, text)

    def add(self, key: str, text: str) -> None:
        """Take in a text; a key that is known is replaced."""
        self.remove(key)
        self.source = None
        self._texts[key] = text
        self._order[key] = self._next
        self._next += 1
        self._exact.setdefault(exact_key(text), set()).add(key)
        self._starts.setdefault(values(text)[:SAME_START], set()).add(key)
        for term in terms(text):
            self._having.setdefault(term, set()).add(key)

    def remove(self, key: str) -> None:
        """Forget a key; an unknown one is ignored."""
        text = self._texts.pop(key, None)
        if text is None:
            return
        self.source = None
        _discard(self._exact, exact_key(text), key)
        _discard(self._starts, values(text)[:SAME_START], key)
        for term in terms(text):
            _discard(self._having, term, key)

    def become(self, items: Iterable[tuple[str, str]]) -> None:
        """Hold these texts alone, in this order: what is as before is not read again."""
        wanted = dict(items)
        for key in [key for key in self._texts if key not in wanted]:
            self.remove(key)
        for key, text in wanted.items():
            if self._texts.get(key) != text:
                self.add(key, text)
        self._order = {key: at for at, key in enumerate(wanted)}
        self._next = len(wanted)

    def text(self, key: str) -> str:
        """Return the text of a key."""
        return self._texts[key]

    def keys(self) -> tuple[str, ...]:
        """Return all keys, in order."""
        return tuple(sorted(self._texts, key=self._order.__getitem__))

    def holding(self, term: str) -> Collection[str]:
        """Return the keys of the texts that hold a term (`terms`)."""
        return self._having.get(term, ())

    def duplicate_of(
        self, text: str, *, threshold: float = THRESHOLD, skip: Collection[str] = ()
    ) -> tuple[str, float] | None:
        """Return (key, cosine) of the text that says the same, the best and earliest one outside `skip`; else None.

        An exact duplicate has cosine 1.0. Texts that contradict are no duplicates.
        """
        exact = [key for key in self._exact.get(exact_key(text), ()) if key not in skip]
        if exact:
            return min(exact, key=self._order.__getitem__), 1.0
        best: tuple[str, float] | None = None
        for key in self._candidates(text, threshold):
            if key in skip or contradicts(text, self._texts[key]):
                continue
            cosine = self._cosine(text, self._texts[key])
            if cosine >= threshold - 1e-9 and (best is None or cosine > best[1]):
                best = key, cosine
        return best

    def opposed_to(self, text: str) -> list[str]:
        """Return the keys of the texts that begin alike and end in another value (`similarity.opposes`)."""
        alike = sorted(self._starts.get(values(text)[:SAME_START], ()), key=self._order.__getitem__)
        return [key for key in alike if opposes(text, self._texts[key])]

    def _candidates(self, text: str, threshold: float) -> list[str]:
        """Return the keys of all texts whose cosine may reach the threshold, in order.

        What is left of a vector without its rarest terms is shorter than `threshold` times the whole, and so is its
        product with any vector of length 1 that has none of them (Cauchy-Schwarz; prefix filtering, Bayardo et al., WWW
        2007). So only texts with one of these terms are looked at.
        """
        squares = {term: (count * self._weight(term, within=True)) ** 2 for term, count in terms(text).items()}
        left = sum(squares.values())
        enough = max(threshold - _MARGIN, 0.0) ** 2 * left
        found: set[str] = set()
        for term in sorted(squares, key=lambda term: len(self.holding(term))):
            if left < enough:
                break
            found.update(self.holding(term))
            left -= squares[term]
        return sorted(found, key=self._order.__getitem__)

    def _cosine(self, a: str, b: str) -> float:
        """Return the TF-IDF cosine of two texts, with the weights of all texts and of `a` itself as one more."""
        first, second = terms(a), terms(b)
        weight = {term: self._weight(term, within=term in first) for term in {**first, **second}}
        dot = sum(count * second[term] * weight[term] ** 2 for term, count in first.items() if term in second)
        norms = [math.sqrt(sum((count * weight[term]) ** 2 for term, count in t.items())) for t in (first, second)]
        return round(dot / (norms[0] * norms[1]), 6) if dot else 0.0

    def _weight(self, term: str, *, within: bool) -> float:
        """Return the inverse document frequency of a term, among all texts and one more that it stands in or not."""
        return math.log((2 + len(self._texts)) / (1 + len(self.holding(term)) + within)) + 1


def _discard(found: dict[_K, set[str]], at: _K, key: str) -> None:
    found[at].discard(key)
    if not found[at]:
        del found[at]


@lru_cache(maxsize=32768)
def terms(text: str) -> Counter[str]:
    """Return how often each term stands in a text: words of two characters or more, in lower case."""
    return Counter(_TERM.findall(text.lower()))
