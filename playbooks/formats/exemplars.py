"""Exemplars as JSON: tasks and the turns that solved them, to take to another workspace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from memory.base import first_error
from memory.errors import BadInput
from memory.operations import op_id
from memory.records import DeltaOp, Frozen, Op, Provenance, Record, Status, Trust
from playbooks.kinds.exemplar import Exemplar

FORMAT = "evolve-exemplars"
VERSION = 1


class _File(Frozen):
    format: str
    version: int
    exemplars: tuple[Exemplar, ...]


def dump(records: Sequence[Record[Any]]) -> str:
    """Return the exemplars as JSON text."""
    file = _File(format=FORMAT, version=VERSION, exemplars=tuple(record.payload for record in records))
    return file.model_dump_json(indent=2) + "\n"


def load(text: str) -> tuple[Exemplar, ...]:
    """Return the exemplars. Raises `BadInput` for text that is no such file, and for one of a newer version."""
    try:
        file = _File.model_validate_json(text)
    except ValidationError as invalid:
        wrong = first_error(invalid, "text")
        raise BadInput(f"no {FORMAT} file: {wrong}; write it with `evolve exemplars export`") from None
    if file.format != FORMAT or file.version > VERSION:
        raise BadInput(
            f"got format {file.format!r} version {file.version}, expected {FORMAT!r} up to {VERSION}: upgrade evolve"
        )
    return file.exemplars


def import_ops(exemplars: Sequence[Exemplar], source: str) -> tuple[DeltaOp, ...]:
    """Return one quarantined ADD for each: status candidate, trust imported. The same file again changes nothing."""
    return tuple(
        DeltaOp(
            op=Op.ADD,
            op_id=op_id("import", source, exemplar.text()),
            kind=Exemplar.kind,
            payload=exemplar.model_dump(mode="json"),
            status=Status.CANDIDATE,
            provenance=Provenance(trust=Trust.IMPORTED, author="import", source=f"{source}#{at}"),
            reason=f"imported from {source}",
        )
        for at, exemplar in enumerate(exemplars, start=1)
    )
