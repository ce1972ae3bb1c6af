"""Instance constants: what a skill holds of the one task it was made from, and what must be a parameter instead.

An id, an address, a name, a number or a quotation that stands in the task's text and again in the code makes the code
a recording of that task (ASI, arXiv 2504.06821, forbids them). Common words, which any task may share, are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_ENTITY = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # address
    r"|[\w./-]*\d[\w./-]*"  # id, date, number, file name
    r"|\w+\.[a-z]{2,4}\b"  # file name
)
_QUOTED = re.compile(r"\"([^\"\n]{2,})\"|(?<!\w)'([^'\n]{2,})'(?!\w)|[“„«]([^”“»\n]{2,})[”“»]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)")
_FREE = frozenset({0, 1, 2})
"""Numbers that say nothing of a task."""
_CENTS = 100
"""A price may stand in the code in cents."""
_FACTORS = frozenset({7, 10, 12, 24, 60, 100, 1000, 3600})
"""Factors that change a unit, as in `amount * 100`."""


@dataclass(frozen=True)
class _Said:
    """What one text says that is particular."""

    inside: frozenset[str]
    """May not stand in a literal as a word."""
    whole: frozenset[str]
    """May not be a literal: words at the start of a sentence, which may be names."""
    numbers: frozenset[float]


def instance_constants(function: ast.FunctionDef, texts: Sequence[str], allowed: str) -> Iterator[tuple[int, str]]:
    """Yield (line, complaint) for each literal copied from one of `texts`, unless it stands in `allowed`."""
    said = [_read(text) for text in texts if text]
    for node in _literals(function):
        copied = next(filter(None, (_copied(node.value, each) for each in said)), "")
        if copied and not _has(allowed, copied):
            yield node.lineno, f"{copied!r} comes from the task it was made from; make it a parameter"


def _read(text: str) -> _Said:
    names = [found for found in _WORD.finditer(text) if found[0][0].isupper()]
    started = {found[0] for found in names if re.search(r"(?:^|[.!?:;\n])\s*$", text[: found.start()])}
    inside = {found[0] for found in names} - started
    inside |= {word.strip("./-") for word in _ENTITY.findall(text)} | {"".join(each) for each in _QUOTED.findall(text)}
    numbers = {float(each.replace(",", "")) for each in _NUMBER.findall(text)} - _FREE
    cents = {round(each * _CENTS, 6) for each in numbers}
    return _Said(frozenset(each for each in inside if len(each) > 1), frozenset(started), frozenset(numbers | cents))


def _literals(function: ast.FunctionDef) -> Iterator[ast.Constant]:
    """Yield the function's literals; docstrings, and factors that change a unit (`amount * 100`), are none."""
    apart = {id(part) for node in ast.walk(function) for part in _not_literal(node)}
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and id(node) not in apart and not isinstance(node.value, bool):
            yield node


def _not_literal(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Mod):
        yield from (
            each for each in (node.left, node.right) if isinstance(each, ast.Constant) and each.value in _FACTORS
        )


def _copied(value: object, said: _Said) -> str:
    """Return what a literal copies, or an empty text."""
    if isinstance(value, int | float):
        return str(value) if abs(value) in said.numbers else ""
    if not isinstance(value, str):
        return ""
    found = [each for each in said.inside if _has(value, each)]
    return max(found, key=lambda each: (len(each), each), default=value if value.strip() in said.whole else "")


def _has(text: str, part: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None
