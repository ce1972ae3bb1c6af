"""Read-only helpers over a `KnowledgeView`, and a view over records in hand. Nothing here can change knowledge."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from memory.protocols import KnowledgeView
from memory.records import RECALLABLE, Record
from playbooks.kinds.bullet import Bullet


class RecordView:
    """A `KnowledgeView` over records in hand: for previews, gates and tests."""

    def __init__(self, records: Iterable[Record[Any]] = (), namespace: str = "default", version: int = 0) -> None:
        self._by_id = {record.id: record for record in records}
        self._namespace = namespace
        self._version = version
        self.kept: dict[str, Any] = {}

    @property
    def namespace(self) -> str:
        return self._namespace

    @property
    def version(self) -> int:
        return self._version

    def records(self, kind: str | None = None) -> tuple[Record[Any], ...]:
        """Return the recallable records in order of creation."""
        shown = [r for r in self._by_id.values() if r.status in RECALLABLE and kind in (None, r.kind)]
        return tuple(sorted(shown, key=creation_order))

    def get(self, record_id: str) -> Record[Any] | None:
        """Return a record of any status."""
        return self._by_id.get(record_id)


def kept_here(view: KnowledgeView, name: str) -> dict[str, Any]:
    """Return what this thread keeps from one view of a namespace to the next, under a name."""
    own: threading.local = view.kept.setdefault(name, threading.local())
    return own.__dict__


def creation_order(record: Record[Any]) -> tuple[int, str]:
    """Return the sort key of creation: the journal's number, then the id."""
    return record.number, record.id


def bullets(view: KnowledgeView) -> tuple[Record[Bullet], ...]:
    """Return the recallable bullets in order of creation."""
    return view.records(Bullet.kind)
