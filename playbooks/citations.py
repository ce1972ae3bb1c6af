"""Resolve a model's citations of records: `[12]`, `shr-00012` or a full id.

References resolve against the records that were shown and nothing else: a rule that was not shown cannot be meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from memory.records import Record

_REFERENCE = re.compile(r"(?:([a-z][a-z0-9_]*)-)?(\d{1,9})")
_SOURCE = re.compile(r"(?<![\w)\]])\[(\?|[^\[\]\n]{1,80})\]")
"""Brackets that are no index of a variable (`rows[0]`)."""
_NUMBERS = re.compile(r"\[[\d,;\s]+\]")
_FENCED = re.compile(r"```[^\n]*\n.*?(?:```|\Z)", re.DOTALL)
_COMMENT = re.compile(r"""((?:[^#'"\n]|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")*)(.*)""")
"""A line of code before its comment, and the rest of it; a `#` in a string begins none."""


def resolve(reference: str, shown: Sequence[Record[Any]]) -> Record[Any] | None:
    """Return the shown record meant by `reference`: its id, label or number, with or without brackets, in any case.

    None when no shown record is meant.
    """
    bare = reference.strip().strip("[](){}<>\"'`# ").casefold()
    for record in shown:
        if bare in (record.id.casefold(), record.label.casefold()):
            return record
    match = _REFERENCE.fullmatch(bare)
    if match is None:
        return None
    slug, number = match.group(1), int(match.group(2))
    for record in shown:
        if record.number == number and slug in (None, (record.slug or record.kind).casefold()):
            return record
    return None


def cited(text: str, shown: Sequence[Record[Any]]) -> tuple[Record[Any], ...]:
    """Return the shown records that `text` cites in brackets (`[12]`, `[shr-00012, api-3]`), in order."""
    found: dict[str, Record[Any]] = {}
    for group in _SOURCE.findall(_masked(text)):
        for reference in re.split(r"[,;\s]+", group):
            record = resolve(reference, shown) if reference else None
            if record is not None:
                found.setdefault(record.id, record)
    return tuple(found.values())


def cites(text: str) -> bool:
    """Return whether `text` says in brackets what it rests on: a record's number or label, or `[?]` for a guess."""
    sources = (part for group in _SOURCE.findall(text) for part in re.split(r"[,;\s]+", group))
    return any(part == "?" or _REFERENCE.fullmatch(part.casefold()) for part in sources)


def uncited(text: str, shown: Sequence[Record[Any]]) -> str:
    """Return `text` with each bracket that cites a shown record as a guess, `[?]`."""
    parts, at = list[str](), 0
    for match in _SOURCE.finditer(_masked(text)):
        if cited(match[0], shown):
            parts += [text[at : match.start()], "[?]"]
            at = match.end()
    return "".join([*parts, text[at:]])


def _masked(text: str) -> str:
    """Return a reply with blanks where its code, comments apart, has brackets of bare numbers: they index and list."""
    if _FENCED.search(text):
        return _FENCED.sub(lambda block: _blanked(block[0]), text)
    return _blanked(text) if _is_code(text) else text


def _blanked(code: str) -> str:
    lines = (_COMMENT.findall(line)[0] for line in code.split("\n"))
    return "\n".join(_NUMBERS.sub(lambda match: " " * len(match[0]), said) + rest for said, rest in lines)


def _is_code(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what ast.parse raises on text that is no code
        return False
    statements = any(not isinstance(each, ast.Expr) for each in tree.body)
    return statements or any(isinstance(each, ast.Call) for each in ast.walk(tree))
