"""Helpers of the commands for one kind of record: list them, find one by name, retire one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from evolve.cli.opening import reading, writing
from evolve.cli.playbook import report

if TYPE_CHECKING:
    from memory.records import Record


def records_of(context: typer.Context, kind: str, everything: bool) -> list[Record[Any]]:
    """Return the records of a kind that prompts may show, or all of them."""
    from memory.records import RECALLABLE

    with reading(context) as (config, store):
        found = [record for record in store.records(config.memory.namespace) if record.kind == kind]
    return [record for record in found if everything or record.status in RECALLABLE]


def find_of(store: Any, namespace: str, name: str, kind: str) -> Record[Any]:
    """Return a record by number, label or id. Raises `BadInput` for one of another kind, and as `find_record`."""
    from evolve.lookup import find_record
    from memory.errors import BadInput

    record = find_record(store, namespace, name)
    if record.kind != kind:
        article = "an" if kind[0] in "aeiou" else "a"
        raise BadInput(
            f"{record.label!r} is a {record.kind}, expected {article} {kind}; see `evolve playbook show {name}`"
        )
    return record


def retire_of(context: typer.Context, name: str, kind: str, as_json: bool) -> None:
    """Take a record out of all prompts and print what came of it."""
    from evolve.workspace import editing

    with writing(context) as (config, store):
        namespace = config.memory.namespace
        report(editing.retire(store, namespace, find_of(store, namespace, name, kind)), as_json)
