"""Names of vector indexes become classes: files of `memory.indexes`, and entry points of other installed packages."""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from memory import indexes

GROUP = "evolve.indexes"
"""The entry points with which another package adds an index on a server."""


@cache
def shipped_kinds() -> tuple[str, ...]:
    """Return the names of the files, with `-` for `_`."""
    found = (path.stem for path in Path(indexes.__path__[0]).glob("*.py"))
    return tuple(sorted(name.replace("_", "-") for name in found if name != "__init__"))


def index_kinds() -> tuple[str, ...]:
    """Return what `memory.index` may begin with: what ships here, and what other packages add."""
    return tuple(sorted({*shipped_kinds(), *metadata.entry_points(group=GROUP).names}))


def index_class(kind: str) -> Any:
    """Return the class of one of `index_kinds`; its file is imported now."""
    if kind in shipped_kinds():
        return import_module(f"{indexes.__name__}.{kind.replace('-', '_')}").MEMBER
    return {point.name: point for point in metadata.entry_points(group=GROUP)}[kind].load()
