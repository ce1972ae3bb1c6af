"""Which records a word finds, in either database."""

from __future__ import annotations

from memory.store import Store


def records_with(store: Store, word: str) -> list[str]:
    """Return the ids of the records whose indexed text holds a word, or one that begins so, in order of creation."""
    condition, values = store.journal.words.holding([word])
    return [
        row[0] for row in store.journal.query(f"SELECT r.id FROM records r WHERE {condition} ORDER BY r.row", values)
    ]
