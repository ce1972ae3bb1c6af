"""Vector indexes, one per file, behind `memory.protocols.Index`: the file's `MEMBER` is the class.

One on a server is made with the address behind its name, and says itself what is wrong with that.
"""

from __future__ import annotations

EXACT, FOLDER = "exact", "chroma"
"""What is on no server: no index at all, and Chroma's folder beside a file."""


def for_a_copy(named: str) -> str:
    """Return the index of a copy of a workspace: what it names on a server is the original's own."""
    return named if named in (EXACT, FOLDER) else EXACT
