"""Which record a model means when it writes `[12]`, `shr-00012` or a full id.

References resolve against the records that were shown and nothing else: a rule that was not shown cannot be meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from memory.records import Record

_REFERENCE = re.compile(r"(?:([a-z][a-z0-9_]*)-)?(\d{1,9})")
_SOURCE = re.compile(r"(?<![\w)\]])\[(\?|[^\[\]\n]{1,80})\]")
"""Brackets that are no index of a variable (`rows[0]`)."""
_BRACKETED = re.compile(r"\[([^\[\]\n]{1,80})\]")


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
    for group in _BRACKETED.findall(text):
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

    def replaced(match: re.Match[str]) -> str:
        return "[?]" if cited(match.group(), shown) else match.group()

    return _SOURCE.sub(replaced, text)
