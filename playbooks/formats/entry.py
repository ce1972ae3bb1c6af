"""One bullet as it travels between formats, and the quarantined deltas that an import becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from memory.errors import BadInput
from memory.operations import op_id
from memory.records import DeltaOp, Frozen, Op, Provenance, Record, Status, Trust, UsageCounts
from playbooks.kinds.bullet import OTHERS, SECTIONS, Bullet, match_section

LABEL = r"[A-Za-z][A-Za-z0-9_]*-\d{1,9}"

_LABEL = re.compile(LABEL)


class Entry(Frozen):
    """A bullet with what a file can say about it."""

    bullet: Bullet
    label: str = ""
    """Its id in the file; a store gives it a number of its own on import."""
    usage: UsageCounts = UsageCounts()


class Format(NamedTuple):
    """How a playbook is read from a file and written to one."""

    load: Callable[[str], Sequence[Entry]]
    dump: Callable[[Sequence[Entry | Record[Any]]], str]


def entries(items: Sequence[Entry | Record[Any]]) -> list[Entry]:
    """Return entries with unique labels: records become entries, a missing or repeated label gets the next free number.

    Raises `BadInput` for a record that is no bullet.
    """
    plain = [item if isinstance(item, Entry) else _of_record(item) for item in items]
    numbers = [int(entry.label.rpartition("-")[2]) for entry in plain if _LABEL.fullmatch(entry.label)]
    free = max(numbers, default=0)
    seen: set[str] = set()
    labelled: list[Entry] = []
    for entry in plain:
        label = entry.label
        if not _LABEL.fullmatch(label) or label in seen:
            free += 1
            label = f"{entry.bullet.slug()}-{free:05d}"
        seen.add(label)
        labelled.append(entry.model_copy(update={"label": label}))
    return labelled


def by_section(items: Sequence[Entry | Record[Any]]) -> list[tuple[str, list[Entry]]]:
    """Return (section, entries): entries keep their order, sections come as in the file or as the known ones stand."""
    groups: dict[str, list[Entry]] = {}
    if any(isinstance(item, Record) for item in items):
        groups = {section: [] for section in SECTIONS}
    for entry in entries(items):
        groups.setdefault(entry.bullet.section, []).append(entry)
    return [(section, group) for section, group in groups.items() if group]


def import_ops(items: Sequence[Entry], source: str) -> tuple[DeltaOp, ...]:
    """Return one quarantined ADD per entry: status candidate, trust imported, never recalled until it is accepted.

    `source` names where the text came from. A section nobody knows becomes OTHERS. Counters are somebody else's claim
    and dropped. Importing the same text from the same source again changes nothing.
    """
    ops: list[DeltaOp] = []
    for at, entry in enumerate(items):
        section = match_section(entry.bullet.section) or OTHERS
        bullet = entry.bullet.model_copy(update={"section": section})
        ops.append(
            DeltaOp(
                op=Op.ADD,
                op_id=op_id("import", source, str(at), entry.label, bullet.content),
                payload=bullet.model_dump(mode="json"),
                status=Status.CANDIDATE,
                provenance=Provenance(trust=Trust.IMPORTED, author="import", source=f"{source}#{entry.label}"),
                reason=f"imported from {source}",
            )
        )
    return tuple(ops)


def make_entry(fields: dict[str, Any], *, label: str = "", usage: UsageCounts | None = None, where: str = "") -> Entry:
    """Return an entry of outside values. Raises `BadInput` naming `where` for values that make no bullet."""
    try:
        return Entry(bullet=Bullet.model_validate(fields), label=label, usage=usage or UsageCounts())
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        raise BadInput(
            f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r:.80}); mend that entry"
        ) from None


def _of_record(record: Record[Any]) -> Entry:
    if not isinstance(record.payload, Bullet):
        raise BadInput(f"record {record.label!r} is a {record.kind}; playbook formats hold bullets only: leave it out")
    return Entry(bullet=record.payload, label=record.label, usage=record.usage)
