"""Takes what another workspace learned into this one: quarantined, with its origin, to be measured here again.

What both know is joined, and what contradicts something in use here waits for a person. How a record did elsewhere is
kept by the policy that it did it with, since what helps one model may harm another; it has no weight here. Merging the
same workspace again brings what it learned since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from evolve.gates.review_queue import PENDING, submit
from memory.errors import BadInput
from memory.evidence import ELSEWHERE
from memory.operations import op_id
from memory.records import RECALLABLE, DeltaOp, Event, Frozen, Op, Record, Status, Trust
from memory.store import Store
from playbooks.contradictions import contradictions
from playbooks.similarity import exact_key
from skills.record import Skill

WRITTEN = ("knowledge.add", "knowledge.edit", "knowledge.merge", "knowledge.rolled_back")
"""Events that gave a record its text, or an earlier one back."""
UNKNOWN = "unknown"
"""Stands for the policy of a run that names none."""


class Merged(Frozen):
    """What came of a merge; records are named by their labels here."""

    source: str
    added: tuple[str, ...]
    """Quarantined."""
    joined: tuple[str, ...]
    """Known here in the same words."""
    conflicts: tuple[str, ...]
    """What waits for a person, each with what it contradicts."""
    repeated: int
    """Records that an earlier merge brought."""
    refused: tuple[str, ...]
    """Why the others were not taken."""


def merge(store: Store, namespace: str, other: Store, other_namespace: str, *, source: str, actor: str) -> Merged:
    """Take what is in use in a namespace of another workspace into one of this one.

    `source` names the other one in what is kept. Raises `BadInput` where both are the same namespace of one database.
    """
    if (_place(store), namespace) == (_place(other), other_namespace):
        raise BadInput(f"got namespace {namespace!r} to merge into itself; name another workspace or --namespace")
    coming = [record for record in other.records(other_namespace) if record.status in RECALLABLE]
    ops = {record.id: _op(record, namespace, source) for record in coming}
    here = [record for record in store.records(namespace) if record.status in {*RECALLABLE, Status.CANDIDATE}]
    known = {_key(record): record.id for record in here}
    before = store.records_of([op.op_id for op in ops.values()])
    places = {r.id: before[ops[r.id].op_id] for r in coming if ops[r.id].op_id in before}
    waiting = {r.id for r in coming if store.events(type=PENDING, subject=ops[r.id].op_id, limit=1)}
    repeated = places.keys() | waiting
    joined = {r.id: known[_key(r)] for r in coming if r.id not in repeated and _key(r) in known}
    rest = [record for record in coming if record.id not in repeated and record.id not in joined]
    conflicts = _conflicts(rest, [record for record in here if record.status in RECALLABLE])
    commit = store.commit(namespace, [ops[r.id] for r in rest if r.id not in conflicts], actor=actor)
    changed = {key: {"status": Status.PROVISIONAL, "reason": why} for key, why in conflicts.items()}
    submit(store, namespace, "", [ops[key].model_copy(update=update) for key, update in changed.items()])
    made = {result.op_id: result.record_id for result in commit.applied if result.record_id}
    added = {r.id: made[ops[r.id].op_id] for r in rest if ops[r.id].op_id in made}
    places |= joined | added
    policies = _policies(other)
    for record in coming:
        if record.id in places:
            data = {
                "record": record.id,
                "source": f"{source}#{record.label}",
                "by_policy": _did(other, record, policies),
            }
            _keep(store, Event(type=ELSEWHERE, namespace=namespace, subject=places[record.id], data=data))
    labels = {record.id: record.label for record in store.load([*added.values(), *joined.values()])}
    return Merged(
        source=source,
        added=tuple(labels[key] for key in added.values()),
        joined=tuple(labels[key] for key in joined.values()),
        conflicts=tuple(f"{r.payload.text()} ({conflicts[r.id]})" for r in rest if r.id in conflicts),
        repeated=len(repeated),
        refused=tuple(result.reason for result in commit.refused),
    )


def _place(store: Store) -> str:
    """Return what two stores of the same database have in common."""
    return store.journal.database or str(store.journal.path.resolve())


def _key(record: Record[Any]) -> tuple[str, str]:
    """Return what two records share that say the same; of a skill that is its code."""
    return record.kind, record.payload.sha256 if record.kind == Skill.kind else exact_key(record.payload.text())


def _op(record: Record[Any], namespace: str, source: str) -> DeltaOp:
    """Return the change that adds a record of another workspace: the same text of it always under the same id here."""
    origin = record.provenance.model_copy(update={"trust": Trust.IMPORTED, "source": f"merge:{source}#{record.label}"})
    return DeltaOp(
        op=Op.ADD,
        op_id=op_id("merge", namespace, record.id, record.content_hash),
        kind=record.kind,
        payload=record.payload.model_dump(mode="json"),
        status=Status.CANDIDATE,
        provenance=origin,
        reason=f"merged from {source}",
    )


def _conflicts(coming: Sequence[Record[Any]], here: Sequence[Record[Any]]) -> dict[str, str]:
    """Return record id -> what it contradicts here, in words."""
    known, new = ({record.id: record for record in records} for records in (here, coming))
    found: dict[str, str] = {}
    for pair in contradictions([*here, *coming], of=new.keys()):
        for one, other in ((pair.first, pair.second), (pair.second, pair.first)):
            if one in new and other in known:
                found[one] = f"contradicts [{known[other].label}] here: {pair.difference}"
    names = {(record.kind, name): record.label for record in here if (name := record.payload.unique())}
    for record in coming:
        if label := names.get((record.kind, record.payload.unique())):
            found[record.id] = f"has the name of [{label}] here"
    return found


def _did(store: Store, record: Record[Any], policies: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Return how the present text of a record did in its own workspace, by policy."""
    history = store.history(record.id)
    said = max((at for at, event in enumerate(history) if event.type in WRITTEN), default=0)
    counts: dict[str, Counter[str]] = {}
    for event in history[said:]:
        if event.type == "knowledge.tag":
            counts.setdefault(policies.get(event.run_id, UNKNOWN), Counter()).update(event.data.get("usage", {}))
    return {name: dict(count) for name, count in counts.items()}


def _policies(store: Store) -> dict[str, str]:
    """Return run -> the name and version of the policy that acted in it."""
    return {
        run["run_id"]: " ".join(filter(None, (run.get("policy", ""), run.get("policy_version", "")))) or UNKNOWN
        for run in store.runs()
    }


def _keep(store: Store, evidence: Event) -> None:
    """Journal how a record did elsewhere, unless the latest word about it is the same."""
    kept = [event.data for event in store.history(evidence.subject) if event.type == ELSEWHERE]
    if evidence.data not in [each for each in kept if each.get("record") == evidence.data["record"]][-1:]:
        store.append(evidence)
