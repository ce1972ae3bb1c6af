"""Find the records most like a text, by the character trigrams that they share.

Likeness is the Dice coefficient of the trigrams of the lower-cased words: deterministic, and without a statistic of all
texts, so that it does not change when unrelated records are added. The trigrams of a view are kept with it (`nearest`):
for the next view of the namespace only what changed is read.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from memory.protocols import KnowledgeView
from memory.records import Record
from playbooks.kinds.bullet import one_line
from playbooks.view import kept_here

NEAREST = 6


def nearest(content: str, view: KnowledgeView, kind: str, k: int = NEAREST) -> tuple[Record[Any], ...]:
    """Return up to `k` recallable records of a kind whose text is most like `content`, best first, ties by number."""
    index: TrigramIndex = kept_here(view, "trigrams").setdefault(kind, TrigramIndex())
    return index.become(view.records(kind)).nearest(content, k)


class TrigramIndex:
    """The trigrams of records: which rows hold each. A record that changed has a new row, and its old one is dead."""

    def __init__(self, records: Sequence[Record[Any]] = ()) -> None:
        self._records: Sequence[Record[Any]] = ()
        self._clear()
        self.become(records)

    def become(self, records: Sequence[Record[Any]]) -> TrigramIndex:
        """Hold these records alone; what is as before is not read again. Return itself."""
        if records is self._records:
            return self
        texts = {record.id: record.payload.text() for record in records}
        gone = [key for key, (_, text) in self._rows.items() if texts.get(key) != text]
        if 2 * len(gone) > len(self._rows) or len(self._sizes) > 2 * len(texts):
            self._clear()
        else:
            for key in gone:
                self._sizes[self._rows.pop(key)[0]] = 0
        for key, text in texts.items():
            if key not in self._rows:
                self._add(key, text)
        self._records, self._by_id = records, {record.id: record for record in records}
        return self

    def nearest(self, content: str, k: int = NEAREST) -> tuple[Record[Any], ...]:
        """Return up to `k` records whose text is most like `content`, best first, ties by number."""
        if not self._sizes:
            return ()
        wanted = _trigrams(content)
        held = [np.frombuffer(self._having[each], dtype=np.int64) for each in wanted if each in self._having]
        sizes = np.frombuffer(self._sizes, dtype=np.int64)
        shared = np.bincount(np.concatenate(held), minlength=len(sizes)) if held else np.zeros(len(sizes))
        likeness = np.where(sizes > 0, 2 * shared / (sizes + len(wanted)), -1.0)
        least = np.partition(likeness, -k)[-k] if 0 < k < len(likeness) else 0.0
        chosen = [(row, self._by_id[self._keys[row]]) for row in np.flatnonzero(likeness >= max(least, 0.0))]
        chosen.sort(key=lambda pair: (-likeness[pair[0]], pair[1].number, pair[1].id))
        return tuple(record for _, record in chosen[:k])

    def _add(self, key: str, text: str) -> None:
        row, found = len(self._sizes), _trigrams(text)
        self._rows[key] = row, text
        self._keys.append(key)
        self._sizes.append(len(found))
        for each in found:
            self._having[each].append(row)

    def _clear(self) -> None:
        self._rows: dict[str, tuple[int, str]] = {}
        """Record id -> its row, and the text that was read."""
        self._keys: list[str] = []
        self._sizes = array("q")
        """Row -> how many trigrams; 0 = dead. No text has none."""
        self._having: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self._by_id: dict[str, Record[Any]] = {}


def _trigrams(text: str) -> frozenset[str]:
    padded = f"  {one_line(text).lower()} "
    return frozenset(padded[at : at + 3] for at in range(len(padded) - 2))
