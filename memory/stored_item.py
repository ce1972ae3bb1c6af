"""The `item` kind: one JSON value under an address, as LangGraph's stores hold them. It is memory and never a rule.

Items live in a namespace of their own, so that no prompt of the loop recalls them; there they are records like any
other, with versions, events, snapshots and recall.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from memory.kinds import register
from memory.records import Payload


class StoredItem(Payload):
    """A value and where it is kept."""

    kind: ClassVar[str] = "item"

    path: tuple[str, ...]
    name: str
    value: dict[str, Any]
    searched: tuple[str, ...] = ()
    """Texts that a search reads; none = only its address finds it."""

    @property
    def address(self) -> tuple[tuple[str, ...], str]:
        """Path and name: what LangGraph calls namespace and key."""
        return self.path, self.name

    def text(self) -> str:
        """Return what is searched, or the address."""
        return "\n".join(self.searched) or "/".join((*self.path, self.name))

    def key(self) -> str:
        """Return the text, or for one without a letter or digit the kind: nothing can be embedded of it."""
        text = self.text()
        return text if any(character.isalnum() for character in text) else self.kind


def texts_in(value: Any, name: str = "") -> Iterator[str]:
    """Yield a line `name: text` for every text and number in a JSON value."""
    if isinstance(value, dict):
        for key, item in sorted(value.items()):
            yield from texts_in(item, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item, name)
    elif value is not None:
        yield f"{name}: {value}" if name else str(value)


register(StoredItem)
