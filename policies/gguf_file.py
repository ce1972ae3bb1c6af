"""Metadata of a GGUF file, read in a fraction of a second: its name, its context, and whether it is whole.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian. The package `gguf`
knows the sizes of tensor types; its reader makes an object of every word of the vocabulary, which takes many seconds.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory.errors import BadInput

MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class Tensor:
    """One tensor: inputs first, as GGUF counts, where PyTorch has them last."""

    shape: tuple[int, ...]
    kind: int
    """As the format counts them; 0 = float32, not quantised."""
    at: int
    """Byte of the file where it begins."""


@dataclass(frozen=True)
class GgufFile:
    """A whole GGUF file of a language model, or of an adapter of one."""

    name: str
    """As its makers wrote it; may be empty."""
    architecture: str
    context: int
    """Tokens of context it was trained for; 0 where it does not say."""
    chat_template: bool
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    """What it says of itself, by key; arrays are left out."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor], compare=False)

    @property
    def is_adapter(self) -> bool:
        """True for an adapter, which is no model by itself."""
        return self.facts.get("general.type") == "adapter"


def inspect(path: Path) -> GgufFile:
    """Return what the file says. Raises `BadInput` for a missing file, one of another format, and one cut short."""
    if not path.is_file():
        raise BadInput(f"there is no file {str(path)!r}; expected a model in GGUF format")
    size = path.stat().st_size
    broken = (struct.error, ArithmeticError, ValueError, TypeError, KeyError, RecursionError)
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise BadInput(f"{str(path)!r} is no GGUF file (it does not begin with {MAGIC.decode()!r})")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                facts, tensors, needed = _read(data)
                architecture = str(facts.get("general.architecture", ""))
                context = int(facts.get(f"{architecture}.context_length", 0))
            except broken as error:
                raise BadInput(f"{str(path)!r} is cut short or damaged ({size} bytes); get it again") from error
    if size < needed:
        raise BadInput(f"{str(path)!r} is cut short: it has {size} bytes, its tensors need {needed}; get it again")
    return GgufFile(
        name=str(facts.get("general.name", "")),
        architecture=architecture,
        context=context,
        chat_template=bool(facts.get("tokenizer.chat_template")),
        facts={key: value for key, value in facts.items() if value is not None},
        tensors=tensors,
    )


class _Cursor:
    """Reads values one after another."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.at = 4

    def number(self, code: str) -> Any:
        value = struct.unpack_from(f"<{code}", self._data, self.at)[0]
        self.at += struct.calcsize(f"<{code}")
        return value

    def skip(self, count: int) -> None:
        self.at += count

    def text(self) -> str:
        length = self.number("Q")
        if self.at + length > len(self._data):
            raise struct.error("a text ends behind the end of the file")
        self.at += length
        return self._data[self.at - length : self.at].decode()

    def value(self, kind: int) -> Any:
        """Return a value; arrays are passed over."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(_SCALARS[kind])
        inner, count = self.number("I"), self.number("Q")
        if inner in _SCALARS:
            self.skip(count * struct.calcsize(_SCALARS[inner]))
        else:
            for _ in range(count):
                self.value(inner)
        return None


def _read(data: mmap.mmap) -> tuple[dict[str, Any], dict[str, Tensor], int]:
    """Return the file's own facts, its tensors, and how many bytes it must have at least. Tensors of a type that is
    newer than the package `gguf` are not counted."""
    from gguf.constants import GGML_QUANT_SIZES

    sizes = {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}

    cursor = _Cursor(data)
    if cursor.number("I") not in (2, 3):
        raise KeyError("version")
    tensors, entries = cursor.number("Q"), cursor.number("Q")
    facts: dict[str, Any] = {}
    for _ in range(entries):
        key = cursor.text()
        facts[key] = cursor.value(cursor.number("I"))
    end, found = 0, dict[str, tuple[tuple[int, ...], int, int]]()
    for _ in range(tensors):
        name = cursor.text()
        shape = tuple(cursor.number("Q") for _ in range(cursor.number("I")))
        kind, offset = cursor.number("I"), cursor.number("Q")
        block, width = sizes.get(kind, (1, 0))
        found[name] = (shape, kind, offset)
        end = max(end, offset + math.prod(shape) // block * width)
    alignment = int(facts.get("general.alignment", 32))
    begin = -(-cursor.at // alignment) * alignment
    placed = {name: Tensor(shape, kind, begin + offset) for name, (shape, kind, offset) in found.items()}
    return facts, placed, begin + end
