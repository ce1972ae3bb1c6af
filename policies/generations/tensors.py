"""The header of a safetensors file: names and shapes without reading a weight, and whether the file is whole.

Format: 8 bytes little-endian length, that many bytes of JSON `{name: {dtype, shape, data_offsets}}`, then the data.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

from policies.generations.errors import AdapterRefused

Shapes = dict[str, tuple[int, ...]]
MOST_HEADER = 100_000_000
BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
"""Bytes of one element; types of one byte are not listed."""


def shapes(path: Path) -> Shapes:
    """Return the shape of every tensor. Raises `AdapterRefused` for a file that is cut off or no safetensors."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MOST_HEADER):
            raise _broken(path, f"{size} bytes, and a header that would need {length}")
        try:
            header: dict[str, Any] = json.loads(file.read(length))
            header.pop("__metadata__", None)
            return {name: _checked(path, name, entry, size - 8 - length) for name, entry in header.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _broken(path, f"an unreadable header ({type(error).__name__})") from error


def model_shapes(directory: Path) -> Shapes:
    """Return the shapes of a model's weights, over all its safetensors files; empty where it has none."""
    found: Shapes = {}
    for path in sorted(directory.glob("*.safetensors")):
        found |= shapes(path)
    return found


def _checked(path: Path, name: str, entry: dict[str, Any], data: int) -> tuple[int, ...]:
    shape = tuple(int(size) for size in entry["shape"])
    begin, end = entry["data_offsets"]
    if end > data:
        raise _broken(path, f"{data} bytes of data, {name!r} ends at byte {end}")
    if end - begin != prod(shape) * BYTES.get(entry["dtype"], 1):
        raise _broken(path, f"{end - begin} bytes for {name!r} of {entry['dtype']} {list(shape)}")
    return shape


def _broken(path: Path, got: str) -> AdapterRefused:
    return AdapterRefused(
        f"{path.name} in {str(path.parent)!r} is damaged or cut off: got {got}; expected a whole safetensors file: "
        "write it again"
    )
