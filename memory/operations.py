"""The delta vocabulary: every change of knowledge is one of these operations."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from memory.base import Frozen, new_id
from memory.knowledge import Provenance, Record, Status, UsageCounts


class Op(StrEnum):
    """The delta vocabulary: every change of knowledge is one of these."""

    ADD = "ADD"
    EDIT = "EDIT"
    """New payload for the same record: next version."""
    TAG = "TAG"
    """Usage counters only: no new version, no new hash."""
    MERGE = "MERGE"
    """A new record that supersedes all its parents."""
    SUPERSEDE = "SUPERSEDE"
    """A new record that replaces one old one."""
    REMOVE = "REMOVE"
    RESTORE = "RESTORE"


_NEEDS: dict[Op, tuple[str, ...]] = {
    Op.ADD: ("payload",),
    Op.EDIT: ("target_id", "payload"),
    Op.TAG: ("target_id", "usage"),
    Op.MERGE: ("parent_ids", "payload"),
    Op.SUPERSEDE: ("target_id", "payload"),
    Op.REMOVE: ("target_id",),
    Op.RESTORE: ("target_id",),
}


class DeltaOp(Frozen):
    """One proposed change. `op_id` makes it idempotent: applying it twice changes nothing the second time."""

    op: Op
    op_id: str = Field(default_factory=new_id)
    kind: str = "bullet"
    target_id: str | None = None
    parent_ids: tuple[str, ...] = ()
    parent_versions: tuple[int, ...] = ()
    """Versions of the parents that a MERGE was written against, in their order; a stale one is refused."""
    payload: dict[str, Any] | None = None
    usage: UsageCounts | None = None
    base_version: int | None = None
    """Version of the target this op was written against; a stale EDIT is refused."""
    status: Status = Status.PROVISIONAL
    """Status of the record that ADD, MERGE or SUPERSEDE creates; the gate decides it."""
    pinned: bool = False
    allow_forgotten: bool = False
    """Write the text although it was forgotten: somebody asked for it."""
    provenance: Provenance = Provenance()
    reason: str = ""

    @model_validator(mode="after")
    def _required_fields(self) -> DeltaOp:
        missing = [name for name in _NEEDS[self.op] if not getattr(self, name)]
        if missing:
            raise ValueError(f"{self.op} needs {', '.join(missing)}; got none")
        if self.parent_versions and len(self.parent_versions) != len(self.parent_ids):
            raise ValueError(f"got {len(self.parent_versions)} versions for {len(self.parent_ids)} parents; give each")
        return self

    def base_of(self, record_id: str) -> int | None:
        """Return the version of its target or of a parent that the op was written against; None where it says none."""
        if record_id == self.target_id:
            return self.base_version
        return dict(zip(self.parent_ids, self.parent_versions, strict=False)).get(record_id)


DUPLICATE = "duplicate"
"""Why an op that had been applied before changed nothing."""


class OpResult(Frozen):
    """What became of one DeltaOp."""

    op_id: str
    applied: bool
    record_id: str | None = None
    version: int | None = None
    reason: str = ""
    """Why it was refused, or `DUPLICATE` when this op_id had been applied before."""


class Commit(Frozen):
    """The result of one transaction on a namespace."""

    namespace: str
    version: int
    """Namespace version after the commit."""
    results: tuple[OpResult, ...]

    @property
    def applied(self) -> tuple[OpResult, ...]:
        return tuple(r for r in self.results if r.applied)

    @property
    def refused(self) -> tuple[OpResult, ...]:
        return tuple(r for r in self.results if not r.applied)


def op_id(*parts: str) -> str:
    """Return an op id that follows from its parts: proposing the same change twice changes nothing the second time."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:26]


def imported(op: DeltaOp, namespace: str) -> DeltaOp:
    """Return an op of a file for one namespace: the same file may be imported into others."""
    return op.model_copy(update={"op_id": op_id("import", namespace, op.op_id)})


def reworded(op: DeltaOp, payload: dict[str, Any]) -> DeltaOp:
    """Return a change in other words. What would bring a text back as it stands replaces it by these."""
    return op.model_copy(update={"payload": payload, "op": Op.SUPERSEDE if op.op is Op.RESTORE else op.op})


def removal(record: Record[Any], key: str, reason: str, provenance: Provenance) -> DeltaOp:
    """Return the REMOVE of a record as it stands, with op id `key`: refused when the record has changed since."""
    return DeltaOp(
        op=Op.REMOVE,
        op_id=key,
        kind=record.kind,
        target_id=record.id,
        base_version=record.version,
        provenance=provenance,
        reason=reason,
    )
