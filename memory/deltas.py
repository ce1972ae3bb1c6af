"""Applies proposed ops in one transaction: validation per op, partial accept with reasons, compare-and-swap.

An op with `base_version` is stale when its target has another version now. Without one it is stale when the target
changed after the `expected_version` that the commit names. ADD and TAG are never stale: they rebase by themselves; a
TAG's `base_version` says which version was seen, and is journalled with the counts.
RESTORE gives its target the op's status and pin, which is also how a gate promotes; REMOVE retires, or rejects when
the op's status says so.

At most one record in use has a name: for kinds that are called by one (`Payload.unique`), whoever writes at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from memory.blobs import check_embedder
from memory.changes import Batch, Change
from memory.content import canonical, clean_body
from memory.database_engine import Connection
from memory.errors import ConflictError
from memory.forget import Tombstone, tombstones
from memory.journal import Journal
from memory.kinds import parse_payload
from memory.operations import DUPLICATE
from memory.proposals import Prepared
from memory.records import (
    FROM_OUTSIDE,
    JUDGES,
    RECALLABLE,
    Commit,
    DeltaOp,
    Op,
    OpResult,
    Payload,
    Status,
    Trust,
    UsageCounts,
)
from memory.targets import Target, find_target, inherit, total_usage

LIVE = RECALLABLE | {Status.CANDIDATE}


class Refused(Exception):
    """An op that cannot be applied; caught per op, so that the others of its commit go on."""


class Forgotten(Refused):
    """An op whose text was forgotten. Its payload is not journalled with the refusal."""


def commit(journal: Journal, batch: Batch, *, model: str, dim: int) -> Commit:
    """Apply a batch in one transaction and return what became of every op.

    `model` and `dim` name the embedder that made the batch's vectors. Raises `ConflictError` when `expected_version`
    lies ahead of the namespace, `EmbedderMismatch` when the stored vectors are of another embedder, `JournalError` when
    the database cannot be written; then nothing of the batch is kept.
    """
    data = clean_body(batch.data) if batch.data else ""
    with journal.transaction() as conn:
        check_embedder(journal, model=model, dim=dim)
        row = conn.execute(
            "SELECT version, next_number FROM namespaces WHERE namespace = ?", (batch.namespace,)
        ).fetchone()
        version, number = cast("tuple[int, int]", row or (0, 1))
        if batch.expected_version is not None and batch.expected_version > version:
            raise ConflictError(
                f"namespace {batch.namespace!r} is at version {version}, got expected {batch.expected_version}. "
                "Read the namespace again and repeat the commit"
            )
        texts = [item.text for item in batch.ops if item.payload is not None and not item.op.allow_forgotten]
        change = Change(journal, batch, model, dim, version, number, tombstones(journal, texts))
        known = _applied(conn, [item.op.op_id for item in batch.ops])
        results = tuple(_apply_once(change, item, known) for item in batch.ops)
        after = version + change.changed
        if any(result.reason != DUPLICATE for result in results):
            applied = sum(result.applied for result in results)
            content = journal.put_body(data) if data else None
            meta = {"version": after, "applied": applied, "refused": len(results) - applied}
            change.event("commit", batch.namespace, meta, content)
        return Commit(namespace=batch.namespace, version=after, results=results)


def _applied(conn: Connection, op_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return op id -> the record and the version that it made, for those that were applied before."""
    rows = conn.execute(
        "SELECT o.op_id, o.record_id, o.version FROM json_each(?) j JOIN ops o ON o.op_id = j.value",
        (json.dumps(list(op_ids)),),
    )
    return {row[0]: (row[1], row[2]) for row in rows}


def _apply_once(change: Change, item: Prepared, known: dict[str, tuple[str, int]]) -> OpResult:
    """Apply an op unless it is `known`, and know it then."""
    op_id = item.op.op_id
    if op_id in known:
        record_id, version = known[op_id]
        return OpResult(op_id=op_id, applied=True, record_id=record_id, version=version, reason=DUPLICATE)
    result = _apply_one(change, item)
    if result.applied and result.record_id is not None and result.version is not None:
        known[op_id] = result.record_id, result.version
    return result


def _apply_one(change: Change, item: Prepared) -> OpResult:
    op = item.op
    try:
        if item.refusal:
            raise Refused(item.refusal)
        _refuse_forgotten(change, item)
        if taken := holder(change.journal.conn, change.batch.namespace, op, item.payload):
            raise Refused(taken)
        record_id, version = _HANDLERS[op.op](change, item)
    except Refused as refusal:
        silent = {"payload"} if isinstance(refusal, Forgotten) else set[str]()
        proposed = op.model_dump(mode="json", exclude=silent)
        content = change.journal.put_body(canonical({"reason": str(refusal), "proposed": proposed}))
        change.event("refused", op.target_id or "", {"op": op.op, "op_id": op.op_id}, content)
        return OpResult(op_id=op.op_id, applied=False, record_id=op.target_id, reason=str(refusal))
    return OpResult(op_id=op.op_id, applied=True, record_id=record_id, version=version)


def _refuse_forgotten(change: Change, item: Prepared) -> None:
    found = None if item.payload is None or item.op.allow_forgotten else change.forgotten.get(item.text)
    if found is not None:
        raise Forgotten(
            f"this text was forgotten{_told_of(change, found)}; to write it all the same, set `allow_forgotten` "
            "(`evolve playbook add --allow-forgotten`)"
        )


def _told_of(change: Change, found: Tombstone) -> str:
    """Return with which record and why a text was forgotten; nothing where that was in another namespace."""
    record = find_target(change.journal.conn, found.record_id)
    if record is None or record.namespace != change.batch.namespace:
        return ""
    return f" with record {found.record_id!r}" + (f" ({found.reason})" if found.reason else "")


def _target(change: Change, op: DeltaOp, record_id: str, *, live: bool = True) -> Target:
    target = find_target(change.journal.conn, record_id)
    if target is None or target.namespace != change.batch.namespace:
        raise Refused(f"no record {record_id!r} in namespace {change.batch.namespace!r}")
    if target.forgotten:
        raise Refused(f"record {record_id!r} was forgotten")
    if live and target.status not in LIVE:
        raise Refused(f"record {record_id!r} is {target.status}; {op.op} needs {', '.join(sorted(LIVE))}")
    if op.payload is not None and op.kind != target.kind:
        raise Refused(f"record {record_id!r} is a {target.kind}, the op carries a {op.kind}")
    return target


def _refuse_stale(change: Change, target: Target, base: int | None) -> None:
    if base is not None:
        if base != target.version:
            raise Refused(
                f"stale: record {target.id!r} is at version {target.version}, the op was written against {base}"
            )
        return
    expected = change.batch.expected_version
    if expected is not None and target.ns_version > expected:
        raise Refused(
            f"stale: record {target.id!r} changed at version {target.ns_version}, the commit expected {expected}"
        )


def _refuse_status(op: DeltaOp, allowed: frozenset[Status]) -> None:
    if op.status not in allowed:
        raise Refused(f"{op.op} cannot give status {op.status}; expected {', '.join(sorted(allowed))}")
    if op.op is not Op.RESTORE and op.status is Status.ACTIVE and op.provenance.trust is Trust.IMPORTED:
        raise Refused(
            "imported text cannot enter as active; add it as candidate or provisional and let a gate promote it"
        )


def _add(change: Change, item: Prepared) -> tuple[str, int]:
    _refuse_status(item.op, LIVE | {Status.REJECTED})
    return change.create(item, item.op.provenance, _counts(item.op)), 1


def _edit(change: Change, item: Prepared) -> tuple[str, int]:
    op = item.op
    target = _target(change, op, op.target_id or "")
    _refuse_stale(change, target, op.base_version)
    pinned = target.pinned or op.pinned
    if item.content_hash == target.content_hash and pinned == target.pinned:
        raise Refused(f"unchanged: record {target.id!r} says this already")
    provenance = inherit(op.provenance, [target])
    return target.id, change.revise("edit", target, op, item=item, pinned=pinned, provenance=provenance)


def _tag(change: Change, item: Prepared) -> tuple[str, int]:
    op = item.op
    target = _target(change, op, op.target_id or "", live=False)
    counts = {name: count for name, count in _counts(op).model_dump().items() if count}
    if not counts:
        raise Refused("TAG counts nothing; expected at least one counter above 0")
    content = change.journal.put_body(canonical({"reason": op.reason})) if op.reason else None
    version = op.base_version or target.version
    meta = {"op_id": op.op_id, "version": version, **_weighed(counts, op.provenance.trust, target.provenance.trust)}
    change.event("tag", target.id, meta, content)
    return target.id, version


def _weighed(counts: Mapping[str, int], reporter: Trust, trust: Trust) -> dict[str, dict[str, int]]:
    """Return what counts, and apart what somebody from outside says for or against knowledge of higher trust.

    The latter is kept and shown and has no weight: nobody saw what was reported, and a rule could be reported to death.
    """
    heard = JUDGES if reporter in FROM_OUTSIDE and not reporter.reaches(trust) else frozenset[str]()
    usage = {name: count for name, count in counts.items() if name not in heard}
    reported = {name: count for name, count in counts.items() if name in heard}
    return {"usage": usage} | ({"reported": reported} if reported else {})


def _counts(op: DeltaOp) -> UsageCounts:
    usage = op.usage or UsageCounts()
    negative = [name for name, count in usage.model_dump().items() if count < 0]
    if negative:
        raise Refused(f"usage counts only count up; got {', '.join(negative)} below 0")
    return usage


def _merge(change: Change, item: Prepared) -> tuple[str, int]:
    ids = tuple(dict.fromkeys(item.op.parent_ids))
    if len(ids) < 2:
        raise Refused(
            f"MERGE needs at least two different parents; got {', '.join(ids)}. Use EDIT or SUPERSEDE for one"
        )
    return _replace(change, item, [_target(change, item.op, parent) for parent in ids])


def _supersede(change: Change, item: Prepared) -> tuple[str, int]:
    target = _target(change, item.op, item.op.target_id or "")
    return _replace(change, item, [target])


def _replace(change: Change, item: Prepared, parents: list[Target]) -> tuple[str, int]:
    """Create the new record and supersede every parent, whatever else happens."""
    op = item.op
    _refuse_status(op, RECALLABLE)
    for parent in parents:
        _refuse_stale(change, parent, op.base_of(parent.id))
    usage = _counts(op)
    if op.usage is None and op.op is Op.MERGE:
        usage = total_usage(change.journal.conn, parents)
    pinned = op.model_copy(update={"pinned": op.pinned or any(parent.pinned for parent in parents)})
    item = replace(item, op=pinned)
    record_id = change.create(item, inherit(op.provenance, parents), usage, [parent.id for parent in parents])
    for parent in parents:
        change.revise("superseded", parent, op, status=Status.SUPERSEDED, pinned=False, by=record_id)
    return record_id, 1


def _remove(change: Change, item: Prepared) -> tuple[str, int]:
    op = item.op
    target = _target(change, op, op.target_id or "")
    _refuse_stale(change, target, op.base_version)
    status = Status.REJECTED if op.status is Status.REJECTED else Status.RETIRED
    return target.id, change.revise("remove", target, op, status=status)


def _restore(change: Change, item: Prepared) -> tuple[str, int]:
    op = item.op
    target = _target(change, op, op.target_id or "", live=False)
    _refuse_stale(change, target, op.base_version)
    _refuse_status(op, LIVE)
    if (op.status, op.pinned) == (target.status, target.pinned):
        raise Refused(f"unchanged: record {target.id!r} is {target.status} already")
    return target.id, change.revise("restore", target, op, status=op.status, pinned=op.pinned)


_HANDLERS: dict[Op, Callable[[Change, Prepared], tuple[str, int]]] = {
    Op.ADD: _add,
    Op.EDIT: _edit,
    Op.TAG: _tag,
    Op.MERGE: _merge,
    Op.SUPERSEDE: _supersede,
    Op.REMOVE: _remove,
    Op.RESTORE: _restore,
}


_BODY = "SELECT r.id, r.slug, r.number, c.body FROM records r JOIN content c ON c.hash = r.content_hash WHERE "
_USED = ", ".join(f"'{status}'" for status in sorted(RECALLABLE))


def holder(conn: Connection, namespace: str, op: DeltaOp, payload: Payload | None) -> str | None:
    """Return why an op may not bring its record into use: another one there has its name. None where it may.

    To be asked inside the transaction that applies the op. What the op replaces does not count.
    """
    if op.op in (Op.TAG, Op.REMOVE):
        return None
    if payload is None:
        row = conn.execute(_BODY + "r.id = ?", (op.target_id or "",)).fetchone()
        payload = parse_payload(row[3]) if row else None
    name = payload.unique() if payload else ""
    if payload is None or not name:
        return None
    target = find_target(conn, op.target_id or "") if op.op is Op.EDIT else None
    if (target.status if target else op.status) not in RECALLABLE:  # an EDIT leaves its target the status that it has
        return None
    replaced = {op.target_id, *op.parent_ids}
    rows = conn.execute(f"{_BODY}r.namespace = ? AND r.kind = ? AND r.status IN ({_USED})", (namespace, payload.kind))
    for record_id, slug, number, body in rows:
        if record_id not in replaced and parse_payload(body).unique() == name:
            return f"taken: {slug}-{number:05d} is in use and named {name!r}; edit it, or choose another name"
    return None
