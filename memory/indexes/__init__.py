"""Vector indexes, one per file, behind `memory.protocols.Index`: the file's `MEMBER` is the class."""

from __future__ import annotations

from pathlib import Path


def index_kinds() -> list[str]:
    """Return what `memory.index` may begin with: the names of the files, with `-` for `_`."""
    found = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name.replace("_", "-") for name in found if name != "__init__")
