"""A playbook as JSON: every field of every bullet, and its counters. The loss-free format of this project."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from memory.base import first_error
from memory.errors import BadInput
from memory.records import Frozen, Record
from playbooks.formats.entry import Entry, Format, entries

FORMAT = "evolve-playbook"
VERSION = 1


class _File(Frozen):
    format: str
    version: int
    bullets: tuple[Entry, ...]


def dump(items: Sequence[Entry | Record[Any]]) -> str:
    """Return the playbook as JSON text."""
    file = _File(format=FORMAT, version=VERSION, bullets=tuple(entries(items)))
    return json.dumps(file.model_dump(mode="json"), ensure_ascii=False, indent=2) + "\n"


def load(text: str) -> list[Entry]:
    """Return the entries. Raises `BadInput` for text that is no such file, and for one of a newer version."""
    try:
        file = _File.model_validate_json(text)
    except ValidationError as invalid:
        raise BadInput(f"no {FORMAT} file: {first_error(invalid, 'text')}; export it again") from None
    if file.format != FORMAT or file.version > VERSION:
        raise BadInput(
            f"got format {file.format!r} version {file.version}, expected {FORMAT!r} up to {VERSION}: upgrade evolve"
        )
    return list(file.bullets)


MEMBER = Format(load, dump)
