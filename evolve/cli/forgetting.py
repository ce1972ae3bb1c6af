"""Says what `evolve memory forget` takes, before it is done and after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.forget import Forgotten
    from memory.store import Store

_NAMES = {"trajectory": "episodes", "reply": "replies", "reflection": "reflections", "run": "run records"}
_SHOWN = 60
"""Characters of a record that are shown."""


def lines(store: Store, gone: Forgotten, *, purge: bool, done: bool) -> list[str]:
    """Return what is gone as text for people; call it before it is done, while the records can be named."""
    told = ["forgot:" if done else "this would be forgotten:"]
    told += [f"  record {_named(store, key, quote=not done)}" for key in gone.records]
    if gone.episodes:
        told.append(f"  episodes: {_counted(gone.episodes)}; their figures stay, their content is out of reach")
    if purge:
        told.append(f"  {gone.bodies} stored texts erased whole")
        if gone.quoted:
            kinds = {_NAMES.get(kind, f"events {kind!r}"): count for kind, count in gone.quoted.items()}
            told.append(f"  the same text cut out of others, which stay: {_counted(kinds)}")
        told.append("  all log files of the workspace, and captured content in its traces")
    if gone.runs:
        told.append(f"  runs concerned, their figures stay: {', '.join(gone.runs)}")
    if gone.descendants:
        told.append(
            f"  kept, made from a forgotten record: {', '.join(_named(store, key) for key in gone.descendants)}"
        )
    return told + [f"  this copy still holds the text, delete it: {path}" for path in gone.backups]


def _named(store: Store, record_id: str, *, quote: bool = False) -> str:
    record = store.get(record_id)
    if record is None:
        return f"{record_id} (forgotten before)"
    others = record.provenance.task_ids
    text = json.dumps(record.payload.text()[:_SHOWN], ensure_ascii=False)
    return f"{record.label}" + (f" {text}, drawn from {', '.join(others) or 'no task'}" if quote else "")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
