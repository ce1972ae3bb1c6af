"""Finds records and snapshots by the short names people use."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from memory.errors import BadInput, NotFound
from memory.knowledge import has_prefix, number_of
from memory.records import RECALLABLE, Record
from memory.store import Store
from skills.record import Skill


def find_record(store: Store, namespace: str, name: str) -> Record[Any]:
    """Return the record with that number (`12`), label (`shr-00012`) or id. Raises `NotFound`.

    A label may be that of an earlier version: an edit may have changed its prefix.
    """
    found = find_records(store, namespace, (name,))
    if name not in found:
        raise NotFound(f"no record {name!r} in namespace {namespace!r}; see `evolve playbook list --all`")
    return found[name]


def find_records(store: Store, namespace: str, names: Collection[str]) -> dict[str, Record[Any]]:
    """Return name -> record for those names that there are, as `find_record` reads them; all in one pass."""
    records = store.records(namespace) if names else ()
    by_id = {each.id: each for each in records}
    by_number: dict[int | None, Record[Any]] = {each.number: each for each in records}
    found: dict[str, Record[Any]] = {}
    for name in names:
        record = by_id.get(name) or by_number.get(number_of(name))
        if record is not None and (record.id == name or has_prefix(name, _prefixes(store, record))):
            found[name] = record
    return found


def _prefixes(store: Store, record: Record[Any]) -> set[str]:
    """Return what the labels of all versions of a record begin with."""
    return {version.slug or version.kind for version in store.reader.versions(record.id)}


def find_skill(store: Store, namespace: str, name: str) -> Record[Skill]:
    """Return the skill of that function name, number, label or id; of several with one name the newest in use.

    Raises `NotFound`, and `BadInput` for a record of another kind.
    """
    named = [r for r in store.records(namespace) if r.kind == Skill.kind and r.payload.name == name]
    if named:
        return max(named, key=lambda record: (record.status in RECALLABLE, record.number))
    try:
        record = find_record(store, namespace, name)
    except NotFound as missing:
        raise NotFound(f"no skill {name!r} in namespace {namespace!r}; see `evolve skills list --all`") from missing
    if record.kind != Skill.kind:
        raise BadInput(f"{record.label!r} is a {record.kind}, expected a skill; see `evolve playbook show {name}`")
    return record


def named(store: Store, namespace: str, name: str) -> Record[Any]:
    """Return the record of that number, label or id, or the skill of that function name. Raises `NotFound`."""
    try:
        return find_record(store, namespace, name)
    except NotFound:
        skills = [r for r in store.records(namespace) if r.kind == Skill.kind and r.payload.name == name]
        if not skills:
            raise
    return find_skill(store, namespace, name)


def find_snapshot(store: Store, namespace: str, name: str) -> str:
    """Return the full address of the snapshot that `name` (an id or the start of one, with or without `@position`)
    means.

    Raises `NotFound`, and `BadInput` when several snapshots start like that.
    """
    prefix, _, position = name.partition("@")
    matching = [
        snapshot
        for snapshot in store.snapshots(namespace)
        if snapshot.id.startswith(prefix) and (not position or str(snapshot.position) == position)
    ]
    if not matching:
        raise NotFound(f"no snapshot {name!r} in namespace {namespace!r}; see `evolve playbook log`")
    if len({snapshot.id for snapshot in matching}) > 1:
        raise BadInput(f"{name!r} is the start of {len(matching)} snapshots; give more of it")
    return f"{matching[-1].id}@{matching[-1].position}"
