"""The version of a skill that a new one has to beat: where chance hides the new one, the task gets this one instead.

ReSkill (arXiv 2606.01619) lets each rollout draw the old or the new version. Only a version that was active is one to
go back to: a skill that never was is hidden, like any other record under test.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from evolve.gates.online_ab import under_test
from memory.records import DeltaOp, Injection, Op, Provenance, Record, Status
from memory.store import Store
from skills.record import Skill


def incumbent(store: Store, record: Record[Skill]) -> Record[Skill] | None:
    """Return the last active version of a skill that reads otherwise than it does now; None where there is none."""
    earlier = [each for each in store.reader.versions(record.id) if each.version < record.version]
    kept = (each for each in reversed(earlier) if each.status is Status.ACTIVE and each.payload != record.payload)
    return next(kept, None)


def incumbents(store: Store, skills: Sequence[Record[Skill]]) -> dict[str, Record[Skill]]:
    """Return record id -> the version before, of those skills that are under test and have one."""
    tested = (record for record in skills if under_test(record))
    return {record.id: old for record in tested if (old := incumbent(store, record))}


def exchanged(
    injected: Sequence[Injection], gone: Collection[str], before: Mapping[str, Record[Skill]]
) -> tuple[Injection, ...]:
    """Return what is injected: of what is `gone` nothing, but skills in the version before, where there is one."""
    kept = (item for item in injected if item.record_id not in gone or item.record_id in before)
    return tuple(
        item.model_copy(update={"version": before[item.record_id].version}) if item.record_id in gone else item
        for item in kept
    )


def reverted(store: Store, record: Record[Skill], op_id: str, author: str, reason: str) -> tuple[DeltaOp, ...]:
    """Return the ops that make the incumbent the current version again, active; empty where there is none."""
    old = incumbent(store, record)
    if old is None:
        return ()
    origin = Provenance(author=author)
    about: dict[str, Any] = {"kind": record.kind, "target_id": record.id, "provenance": origin, "reason": reason}
    payload = old.payload.model_dump(mode="json")
    text = DeltaOp(op=Op.EDIT, op_id=op_id, payload=payload, base_version=record.version, **about)
    return text, DeltaOp(op=Op.RESTORE, op_id=f"{op_id}/status", status=Status.ACTIVE, pinned=record.pinned, **about)
