"""Errors of the memory floor. Each says what was got, what was expected and what to do.

EvolveError
├── JournalError (RuntimeError)       the database cannot be used as asked
│   ├── SchemaTooNew                  written by a newer evolve; refuses to downgrade
│   └── ConflictError                 compare-and-swap lost
├── IndexLocked (RuntimeError)        another process owns the vector index
├── IndexCorrupt (RuntimeError)       the vector index failed its health probe
├── IndexUnavailable (RuntimeError)   the server that holds the vector index does not answer as asked
├── EmbedderMismatch (ValueError)     the collection was made by another embedder
├── NotFound (LookupError)            no such record, snapshot or run
└── BadInput (ValueError)             a value from outside was refused
"""

from __future__ import annotations

from typing import Self


class EvolveError(Exception):
    """Base of every error this project raises on purpose; the CLI prints it as one sentence and exits non-zero."""


class JournalError(EvolveError, RuntimeError):
    """The journal cannot be used as asked."""


class SchemaTooNew(JournalError):
    """The workspace was written by a newer version."""


class ConflictError(JournalError):
    """The namespace moved on since it was read."""


class IndexLocked(EvolveError, RuntimeError):
    """Another process owns the vector index directory."""


class IndexCorrupt(EvolveError, RuntimeError):
    """The vector index failed its health probe."""


class IndexUnavailable(EvolveError, RuntimeError):
    """The server that holds the vector index does not answer, or refuses."""

    @classmethod
    def of(cls, server: str, reason: str, hint: str) -> Self:
        """Return what is said of a server that does not answer as asked."""
        return cls(
            f"{server} does not answer as asked ({reason}); nothing is lost, the journal holds every vector, and "
            f"recall searches them exactly meanwhile. {hint}"
        )


class EmbedderMismatch(EvolveError, ValueError):
    """A collection was made by another embedder than the one configured."""


class NotFound(EvolveError, LookupError):
    """No record, snapshot or run has that id."""


class BadInput(EvolveError, ValueError):
    """A value that came from outside was refused."""


def not_unicode(error: UnicodeEncodeError) -> BadInput:
    """Return what a database says of an id that it cannot hold. In texts half a character is replaced, in ids never."""
    return BadInput(f"got {error.object!r:.200}, expected an id of whole Unicode characters; name it anew")
