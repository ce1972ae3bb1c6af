"""The word side of recall: BM25 over an FTS5 table, at a bounded cost per query where there is one namespace.

Common words cost the most and say the least: BM25 visits every record that has one. So the rarest words of a query are
used first, until the records they occur in reach `POSTINGS`.

The database keeps the postings. The score is computed here, the same for every database, by the formula of FTS5's
`bm25()`. With n of N records that hold a word, f times in a record of d words where the mean is D:

    idf = log((N - n + 0.5) / (n + 0.5)), at least 1e-6    score = sum over words of idf * 2.2 f / (f + 0.3 + 0.9 d / D)
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from memory.database_engine import Words
from memory.sqlite.fts_words import stem

POSTINGS = 1000
"""Word occurrences that one query may visit."""
_KEPT = 4096
"""Stems of which the postings are kept."""
_NAMESPACES_KEPT = 32
Hits = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Row ids, and their scores."""
_WORD = re.compile(r"[^\W_]+")
_FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be but by can do does for from had has have how i if in into is it its me my no not of on "
        "or our so than that the their them then there these they this to us was we what when where which who will "
        "with you your"
    )
)


@lru_cache(maxsize=256)
def query_words(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text, lower-case, in order; punctuation and FTS5 operators are no words.

    English function words are left out: a record that shares only `the` shares nothing.
    """
    words = dict.fromkeys(_WORD.findall(unicodedata.normalize("NFC", text.lower())))  # `straße`, as FTS5 has it
    return tuple(word for word in words if word not in _FUNCTION_WORDS)


def rarest(words: Sequence[str], frequency: Mapping[str, int], *, postings: int = POSTINGS) -> list[str]:
    """Return the rarest words that occur anywhere, rarest first.

    `frequency` is the number of records per word. The rarest word always enters, others while the sum stays within
    `postings`; equal frequencies go by the word.
    """
    chosen: list[str] = []
    visited = 0
    for word in sorted((word for word in words if frequency.get(word, 0) > 0), key=lambda w: (frequency[w], w)):
        visited += frequency[word]
        if chosen and visited > postings:
            break
        chosen.append(word)
    return chosen


class WordSearch:
    """Which records hold some words, ranked. Call it with the journal's lock held.

    Words are counted in one namespace, so that no score tells what another one holds; or, without one, in all texts.
    What was read is kept as long as the `stamp` of a question (whatever tells that no text changed) stays the same.
    """

    def __init__(self, words: Words, namespace: str | None = None) -> None:
        self._words, self._namespace = words, namespace
        self._known: dict[str, int] = {}
        self._counted: set[str] = set()
        self._hits: dict[str, Hits] = {}
        self._totals: tuple[int, int] | None = None
        self._stamp: object = None

    def best(self, words: Sequence[str], stamp: object) -> Hits:
        """Return every record that holds one of the rarest words with its BM25, best first; equal ones by row id."""
        chosen = rarest(words, self.frequency(words, stamp))
        if not chosen:
            return np.empty(0, np.int64), np.empty(0)
        hits = [self._of(stem(word)) for word in chosen]
        rows, place = np.unique(np.concatenate([rows for rows, _ in hits]), return_inverse=True)
        scores = np.bincount(place, np.concatenate([scores for _, scores in hits])).astype(np.float64)
        order = np.argsort(-scores, kind="stable")
        return rows[order], scores[order]

    def frequency(self, words: Sequence[str], stamp: object) -> dict[str, int]:
        """Return word -> number of records that hold its stem.

        Of what is too common to be used beside a rarer word no more is counted than that it is.
        """
        if stamp != self._stamp:
            self._known, self._counted, self._hits, self._totals, self._stamp = {}, set(), {}, None, stamp
        asked = {stem(word): word for word in words}
        self._count({each: word for each, word in asked.items() if each not in self._known}, POSTINGS + 1)
        found = {each: word for each, word in asked.items() if self._known[each]}
        if all(self._known[each] > POSTINGS for each in found):
            self._count({each: word for each, word in found.items() if each not in self._counted}, None)
            self._counted |= found.keys()
        return {word: self._known[stem(word)] for word in words}

    def _count(self, asked: Mapping[str, str], most: int | None) -> None:
        if asked:
            self._known |= self._words.records(asked, self._namespace, most)

    def _of(self, stem: str) -> Hits:
        """Return the records that hold a stem, with what it adds to their scores."""
        found = self._hits.get(stem)
        if found is None:
            if len(self._hits) >= _KEPT:
                self._hits.clear()
            found = self._hits[stem] = self._scored(stem)
        return found

    def _scored(self, stem: str) -> Hits:
        if self._totals is None:
            self._totals = self._words.totals(self._namespace)
        rows, times, lengths = self._words.places(stem, self._namespace)
        total, tokens = self._totals
        total = max(total, len(rows))  # another process may have written between the two questions
        idf = max(math.log((total - len(rows) + 0.5) / (len(rows) + 0.5)), 1e-6)
        return rows, idf * (times * 2.2 / (times + 1.2 * (0.25 + 0.75 * lengths / (tokens / total))))


class WordSearches:
    """The words of each namespace, kept for those that were asked last."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._kept: OrderedDict[str | None, WordSearch] = OrderedDict()

    def of(self, namespace: str | None) -> WordSearch:
        """Return the search in a namespace; None = in all texts, the faster one where there is one namespace."""
        found = self._kept.setdefault(namespace, WordSearch(self._words, namespace))
        self._kept.move_to_end(namespace)
        while len(self._kept) > _NAMESPACES_KEPT:
            self._kept.popitem(last=False)
        return found
