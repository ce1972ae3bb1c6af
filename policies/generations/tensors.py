"""Safetensors files without any package: names and shapes by the header alone, whether the file is whole, and values.

Format: 8 bytes little-endian length, that many bytes of JSON `{name: {dtype, shape, data_offsets}}`, then the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.generations.errors import AdapterRefused

Shapes = dict[str, tuple[int, ...]]
MOST_HEADER = 100_000_000
BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
"""Bytes of one element; types of one byte are not listed."""


Floats = npt.NDArray[np.float32]


def shapes(path: Path) -> Shapes:
    """Return the shape of every tensor. Raises `AdapterRefused` for a file that is cut off or no safetensors."""
    return {name: shape for name, shape, _ in _entries(path)}


def values(path: Path) -> Iterator[tuple[str, Floats]]:
    """Yield every tensor in float32, one after another. Raises as `shapes`, and for tensors of whole numbers."""
    with path.open("rb") as file:
        for name, shape, entry in _entries(path):
            file.seek(entry["from"])
            raw = file.read(prod(shape) * BYTES.get(entry["dtype"], 1))
            if entry["dtype"] == "BF16":  # the upper half of a float32
                flat = (np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16).view(np.float32)
            elif entry["dtype"] in ("F32", "F16"):
                flat = np.frombuffer(raw, dtype=f"<f{BYTES[entry['dtype']]}").astype(np.float32)
            else:
                raise _broken(path, f"{name!r} of {entry['dtype']}, where weights are F32, F16 or BF16")
            yield name, flat.reshape(shape)


def _entries(path: Path) -> list[tuple[str, tuple[int, ...], dict[str, Any]]]:
    """Return name, shape, and type and place of every tensor."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MOST_HEADER):
            raise _broken(path, f"{size} bytes, and a header that would need {length}")
        try:
            header: dict[str, Any] = json.loads(file.read(length))
            header.pop("__metadata__", None)
            return [
                (
                    name,
                    _checked(path, name, entry, size - 8 - length),
                    {"dtype": entry["dtype"], "from": 8 + length + int(entry["data_offsets"][0])},
                )
                for name, entry in header.items()
            ]
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
