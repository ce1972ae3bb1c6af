"""How large a value is once everything that is shared in it stands by itself.

`x = [x, x]`, 26 times, is 27 lists in a sandbox and 67 million when something on the host prints, copies or checks it.
Shared parts are measured once, so measuring costs what the value costs, not what it expands to.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

LARGEST = 4 << 20
"""Characters, and eight for each value, that one host call may take and give."""
DEEPEST = 100
"""Levels of lists, dicts and objects inside each other."""
_EACH = 8


class TooLarge(ValueError):
    """A value that expands too far."""


def expanded_size(value: Any, largest: int = LARGEST) -> int:
    """Return the size of a value. Raises `TooLarge` for one that is larger, nested too deep, or contains itself."""
    return _measure(value, 0, {}, largest)[0]


def _measure(value: Any, depth: int, known: dict[int, tuple[int, int]], largest: int) -> tuple[int, int]:
    """Return size and levels of a value. `known` has those of the containers that were measured, by id."""
    if isinstance(value, str | bytes):
        return _EACH + len(value), 0
    if isinstance(value, int):
        return _EACH + value.bit_length() // 4, 0
    parts = _parts(value)
    if parts is None:
        return _EACH, 0
    size, levels = known.get(id(value), (_EACH, 1))
    if id(value) not in known:
        if depth >= DEEPEST:
            raise TooLarge(f"a value is nested more than {DEEPEST} levels deep; pass a flatter one")
        for part in parts:
            more, below = _measure(part, depth + 1, known, largest)
            size, levels = size + more, max(levels, below + 1)
            if size > largest:
                raise TooLarge(f"a value expands to more than {largest:,} characters; pass a smaller one")
        known[id(value)] = (size, levels)
    if depth + levels > DEEPEST:
        raise TooLarge(f"a value is nested more than {DEEPEST} levels deep; pass a flatter one")
    return size, levels


def _parts(value: Any) -> Any:
    """Return what a value holds, or None. An object of the sandbox comes as a stand-in with `attributes`."""
    if isinstance(value, list | tuple | set | frozenset):
        return value
    attributes = value if isinstance(value, dict) else getattr(value, "attributes", None)
    return chain.from_iterable(attributes.items()) if isinstance(attributes, dict) else None
