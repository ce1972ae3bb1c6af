"""The state of an existing record as a change needs it: no payload, only what decides whether an op may be applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

from memory.database_engine import Connection
from memory.projection import COUNTS
from memory.records import Provenance, Status, Trust, UsageCounts

_STRENGTH = list(Trust)


@dataclass(frozen=True)
class Target:
    """One row of the projection, its fields in the order they are read. SQLite's 0 and 1 stand for the booleans."""

    row: int
    id: str
    namespace: str
    kind: str
    slug: str
    status: Status
    version: int
    max_version: int
    pinned: bool
    content_hash: str
    provenance: Provenance
    ns_version: int
    forgotten: bool


def find_target(conn: Connection, record_id: str) -> Target | None:
    """Return the record's current state, or None."""
    row = conn.execute(
        "SELECT r.row, id, namespace, kind, slug, status, version, max_version, pinned, content_hash, provenance,"
        " ns_version, forgotten FROM records r WHERE id = ?",
        (record_id,),
    ).fetchone()
    if row is None:
        return None
    fields = list(row)
    fields[5], fields[10] = Status(row[5]), _provenance(row[10])
    return Target(*fields)


@lru_cache(maxsize=256)
def _provenance(body: str) -> Provenance:
    return Provenance.model_validate_json(body)


def total_usage(conn: Connection, targets: Sequence[Target]) -> UsageCounts:
    """Return the summed counters of several records: a merge carries on what its parents have earned."""
    total = UsageCounts()
    for target in targets:
        row = conn.execute(f"SELECT {', '.join(COUNTS)} FROM usage WHERE record_id = ?", (target.id,)).fetchone()
        total = total + UsageCounts(**dict(zip(COUNTS, row, strict=True)))
    return total


def inherit(own: Provenance, targets: Sequence[Target]) -> Provenance:
    """Return the provenance of text drawn from `targets`: all their tasks and trajectories, and the weakest trust.

    Only an operator's own word is not weakened by what it replaces.
    """
    origins = [own, *(target.provenance for target in targets)]
    trust = own.trust if own.trust is Trust.OPERATOR else max((o.trust for o in origins), key=_STRENGTH.index)
    return own.model_copy(
        update={
            "trust": trust,
            "task_ids": _union([origin.task_ids for origin in origins]),
            "trajectory_ids": _union([origin.trajectory_ids for origin in origins]),
        }
    )


def _union(parts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    merged: dict[str, None] = reduce(lambda seen, part: seen | dict.fromkeys(part), parts, {})
    return tuple(merged)
