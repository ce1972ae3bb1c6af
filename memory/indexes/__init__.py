"""Vector indexes, one per file, behind `memory.protocols.Index`: the file's `MEMBER` is the class."""

from __future__ import annotations

from functools import cache
from pathlib import Path

EXACT, FOLDER = "exact", "chroma"
"""What is on no server: no index at all, and Chroma's folder beside a file."""

ON_A_SERVER = ("chroma-http", "qdrant")
"""What is named with the address of a server of its own."""


def for_a_copy(named: str) -> str:
    """Return the index of a copy of a workspace: what it names on a server is the original's own."""
    return named if named in (EXACT, FOLDER) else EXACT


@cache
def index_kinds() -> tuple[str, ...]:
    """Return what `memory.index` may begin with: the names of the files, with `-` for `_`."""
    found = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return tuple(sorted(name.replace("_", "-") for name in found if name != "__init__"))
