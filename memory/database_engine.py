"""Interface to the database of a workspace. SQLite and PostgreSQL implement it, a folder each.

All else in this package is written once, in SQL that both understand. Three things are not the same in both: how a
write waits for its turn, how words are indexed, and what may be done about damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Cursor(Protocol):
    """The rows of one statement."""

    def fetchone(self) -> Any:
        """Return the next row, a tuple, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """What statements are run on. `?` stands for a parameter."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Run one statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Cursor:
        """Run one statement once for each tuple of parameters."""
        ...


class Words(Protocol):
    """The index of words: which texts hold which stems, how often. Call it with the journal's lock held."""

    def put(self, row: int, text: str) -> None:
        """Index a text under a number that has none."""
        ...

    def remove(self, row: int) -> None:
        """Forget a text."""
        ...

    def clear(self) -> None:
        """Forget every text."""
        ...

    def records(self, asked: Mapping[str, str], namespace: str | None, most: int | None) -> dict[str, int]:
        """Return stem -> how many texts hold it, of one namespace if given; at most `most` of each are counted.

        `asked` is stem -> a word of that stem.
        """
        ...

    def totals(self, namespace: str | None = None) -> tuple[int, int]:
        """Return how many texts there are, of one namespace if given, and how many words they have together."""
        ...

    def places(
        self, stem: str, namespace: str | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the texts that hold a stem, in the order of their numbers; how often; and their lengths in words.

        Of one namespace, if given.
        """
        ...

    def missing(self) -> int:
        """Return how many records that are not forgotten are not in it."""
        ...

    def holding(self, words: Sequence[str]) -> tuple[str, list[Any]]:
        """Return a condition on `r.row`, with its parameters: all words occur, the last one may be unfinished."""
        ...


class Engine(Protocol):
    """An open database of one workspace."""

    @property
    def conn(self) -> Connection:
        """What statements are run on."""
        ...

    @property
    def words(self) -> Words:
        """The index of words."""
        ...

    @property
    def name(self) -> str:
        """What errors call it: the file, or the server and its database. No password is in it."""
        ...

    @property
    def in_transaction(self) -> bool:
        """True between `begin` and the end of the transaction."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """Turn the database's errors into `JournalError` and `BadInput` that say what to do."""
        ...

    def begin(self) -> None:
        """Begin a write transaction: one at a time among all processes. Raises `SchemaTooNew`."""
        ...

    def begin_reading(self) -> None:
        """Begin a transaction that sees one moment, writes nothing, and keeps no writer waiting."""
        ...

    def outside(self, written: int) -> int:
        """Return what changes when another connection wrote; this one has written so many events."""
        ...

    def examine(self) -> list[str]:
        """Return what is wrong with the storage itself; empty = nothing."""
        ...

    def size(self) -> int:
        """Return how many bytes it takes."""
        ...

    def copy_to(self, path: Path) -> bool:
        """Write what there is to a new SQLite file; False where that is done event by event (`memory.moving`)."""
        ...

    def scrub(self) -> None:
        """Overwrite what deleted rows left on disk. Raises `JournalError` while others keep it busy."""
        ...

    def lease(self, name: str) -> AbstractContextManager[bool]:
        """Hold what has this name, as long as the process lives; give False where another one holds it."""
        ...

    def leased(self, name: str) -> bool:
        """Tell whether a living process holds it."""
        ...

    def close(self) -> None:
        """Close the connection; closing twice is allowed."""
        ...
