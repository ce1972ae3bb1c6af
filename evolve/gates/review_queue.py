"""The review queue: learned changes that wait for a person. Events only; a waiting change is in no prompt.

`review.pending` holds the op, `review.accepted` and `review.rejected` close it; an op is decided once. One that was
deferred (`review.deferred`) still waits, after all others; one that says what waits or was rejected is closed at once
(`review.repeated`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import ValidationError

from evolve.gates.gate_events import VERDICT
from memory import paging
from memory.erasing import ERASED_PAYLOAD
from memory.errors import BadInput, NotFound
from memory.kinds import payload_class
from memory.operations import reworded
from memory.records import Commit, DeltaOp, Event, Frozen, Op, Status, Trust, Verdict
from memory.store import Store

PENDING, ACCEPTED, REJECTED = "review.pending", "review.accepted", "review.rejected"
DEFERRED, REPEATED = "review.deferred", "review.repeated"


WRITTEN_IN = {"bullet": "content", "skill": "source"}
"""Kind -> the field of its payload that a person edits as text; what is not here is edited whole, as JSON."""


class Proposal(Frozen):
    """One change that waits, or waited."""

    op: DeltaOp
    namespace: str
    run_id: str
    seq: int
    """Its place in the journal: a short number to name it by."""
    decision: str = ""
    """Empty while it waits, else `accepted`, `rejected` or `repeated`."""
    reason: str = ""
    deferred: int = 0
    """How often it was put off."""


class Standing(Frozen):
    """What became of a change that was put before the gates."""

    op_id: str
    answer: Literal["in use", "quarantined", "in review", "deferred", "refused", "known"]
    """`known`: the same text waits in quarantine already."""
    name: str = ""
    """Label of the record it became, or its number in the review queue."""
    reason: str = ""


def standing(store: Store, op: DeltaOp, subject: str) -> Standing:
    """Return what became of a change; `subject` is what its verdicts are journalled under."""
    applied = store.records_of([op.op_id])
    record = store.get(applied[op.op_id]) if applied else None
    if record is not None:
        held = record.status is Status.CANDIDATE
        return Standing(op_id=op.op_id, answer="quarantined" if held else "in use", name=record.label)
    queued = store.events(type=PENDING, subject=op.op_id)
    if queued:
        return Standing(op_id=op.op_id, answer="in review", name=str(queued[0].seq))
    for verdict in (Verdict.model_validate(event.data) for event in store.events(type=VERDICT, subject=subject)):
        if op.op_id in verdict.rejected:
            return Standing(op_id=op.op_id, answer="refused", reason=verdict.rejected[op.op_id])
        if op.op_id in verdict.deferred:
            return Standing(op_id=op.op_id, answer="deferred", reason=verdict.deferred[op.op_id])
    for event in store.events(type="knowledge.refused", subject=op.target_id or ""):
        if event.data.get("op_id") == op.op_id:
            return Standing(op_id=op.op_id, answer="refused", reason=str(event.data.get("reason", "")))
    return Standing(op_id=op.op_id, answer="known")


def submit(store: Store, namespace: str, run_id: str, ops: Sequence[DeltaOp]) -> int:
    """Queue ops that are not queued yet; return how many of `ops` wait now.

    One that states what a person turned down, or what waits already, is queued and closed at once, with that as reason.
    """
    before = proposals(store, namespace, decided=True) if ops else ()
    known = {_meaning(each.op): each for each in before if each.decision != "repeated"}
    waiting = 0
    for op in ops:
        if not store.events(type=PENDING, subject=op.op_id):
            data = {"op": op.model_dump(mode="json")}
            event = Event(type=PENDING, namespace=namespace, run_id=run_id, subject=op.op_id, data=data)
            proposal = Proposal(op=op, namespace=namespace, run_id=run_id, seq=store.append(event).seq)
            same = known.get(_meaning(op)) if op.payload else None
            if same is not None and not same.decision and _moved_on(store, same.op):
                _decide(store, REPEATED, same, {"reason": f"number {proposal.seq} says the same of what is there now"})
            elif same is not None and same.decision != "accepted":
                why = f"number {same.seq} says the same and {'was rejected' if same.decision else 'waits'}"
                _decide(store, REPEATED, proposal, {"reason": why})
                continue
            known[_meaning(op)] = proposal
        waiting += 1
    return waiting


def _meaning(op: DeltaOp) -> tuple[str, ...]:
    """Return what makes two waiting changes the same to whoever reads them."""
    return op.op.value, op.kind, op.target_id or "", " ".join(says(op).split()), *sorted(op.parent_ids)


def _moved_on(store: Store, op: DeltaOp) -> bool:
    """Tell whether what a change was written against has another version now, so that it can never be applied."""
    bases = {key: base for key in (op.target_id, *op.parent_ids) if key and (base := op.base_of(key)) is not None}
    found = {record.id: record.version for record in store.load(list(bases))}
    return any(found.get(key) != base for key, base in bases.items())


def proposals(store: Store, namespace: str | None = None, *, decided: bool = False) -> tuple[Proposal, ...]:
    """Return the queue in order of submission, what was put off last; with `decided` also what was answered."""
    closed = {
        event.subject: (name, str(event.data.get("reason", "")))
        for kind, name in ((ACCEPTED, "accepted"), (REJECTED, "rejected"), (REPEATED, "repeated"))
        for event in store.events(type=kind, namespace=namespace)
    }
    deferred = Counter(event.subject for event in store.events(type=DEFERRED, namespace=namespace))
    found: list[Proposal] = []
    for event in store.events(type=PENDING, namespace=namespace):
        decision, reason = closed.get(event.subject, ("", ""))
        if "op" in event.data and (decided or not decision):
            op = DeltaOp.model_validate(event.data["op"])
            if op.payload == ERASED_PAYLOAD and not decision:
                continue  # its text was forgotten: there is nothing left to decide
            found.append(
                Proposal(
                    op=op,
                    namespace=event.namespace,
                    run_id=event.run_id,
                    seq=event.seq,
                    decision=decision,
                    reason=reason,
                    deferred=deferred[event.subject],
                )
            )
    return tuple(sorted(found, key=lambda proposal: proposal.deferred))


def namespaces(store: Store) -> tuple[str, ...]:
    """Return the namespaces in which something is known or was proposed, by name."""
    return tuple(sorted({*store.namespaces(), *paging.namespaces(store.journal, (PENDING,))}))


def find(store: Store, name: str, namespace: str | None = None) -> Proposal:
    """Return a proposal by op id or number, decided ones included; of one namespace, if given. Raises `NotFound`."""
    for proposal in proposals(store, namespace, decided=True):
        if name in (proposal.op.op_id, str(proposal.seq)):
            return proposal
    raise NotFound(f"no proposal {name!r}; see `evolve review list`")


def accept(store: Store, name: str, *, actor: str, payload: dict[str, Any] | None = None, reason: str = "") -> Commit:
    """Apply a waiting change, with an edited payload if given, under the operator's authority.

    A change that can no longer be applied (its target moved on) stays in the queue and its commit tells why.
    Raises `NotFound`, and `BadInput` when it was decided before.
    """
    proposal = waiting(store, name)
    trusted = proposal.op.provenance.model_copy(update={"trust": Trust.OPERATOR})
    said = proposal.op if payload is None else reworded(proposal.op, payload)
    ready = store.prepare([said.model_copy(update={"provenance": trusted})])
    with store.journal.transaction():
        waiting(store, name)
        commit = store.commit(proposal.namespace, ready, actor=actor, run_id=proposal.run_id)
        if commit.applied:
            _decide(store, ACCEPTED, proposal, {"actor": actor, "reason": reason, "edited": payload is not None})
    return commit


def reject(store: Store, name: str, *, actor: str, reason: str = "") -> Proposal:
    """Close a waiting change without applying it. Raises `NotFound`, and `BadInput` when it was decided before."""
    with store.journal.transaction():
        proposal = waiting(store, name)
        _decide(store, REJECTED, proposal, {"actor": actor, "reason": reason})
    return proposal.model_copy(update={"decision": "rejected", "reason": reason})


def defer(store: Store, name: str, *, actor: str, reason: str = "") -> Proposal:
    """Put a waiting change off: it waits on, after all others. Raises as `reject`."""
    with store.journal.transaction():
        proposal = waiting(store, name)
        _decide(store, DEFERRED, proposal, {"actor": actor, "reason": reason})
    return proposal.model_copy(update={"deferred": proposal.deferred + 1})


def says(op: DeltaOp) -> str:
    """Return what the changed record would say; empty for a counter or a removal."""
    if not op.payload:
        return ""
    try:
        return payload_class(op.kind).model_validate(op.payload).text()
    except ValidationError:  # refused when it is accepted; here it is only shown
        return json.dumps(op.payload, indent=2, ensure_ascii=False)


def edited(op: DeltaOp, text: str) -> dict[str, Any]:
    """Return the payload of a change in other words.

    Raises `BadInput` for no words, for a change that has none, and for what is no JSON object.
    """
    if not op.payload or op.op is Op.REMOVE:
        raise BadInput(f"got other words for a change ({op.op.value}) that has none; accept it as it is, or reject it")
    if not text.strip():
        raise BadInput("got an empty text; expected the words to apply, or reject the change")
    return in_other_words(op.kind, op.payload, text)


def in_other_words(kind: str, payload: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a payload with the text that a person wrote: its text field, or the fields of a JSON object.

    Raises `BadInput` where a kind without a text field gets no JSON object.
    """
    if field := WRITTEN_IN.get(kind):
        return payload | {field: text}
    try:
        return payload | json.loads(text)
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"got {text[:80]!r}; expected the fields of the {kind} to change as a JSON object: {error}"
        ) from error


def waiting(store: Store, name: str) -> Proposal:
    """Return a proposal that is to be decided. Raises `NotFound`, and `BadInput` when it was decided before."""
    proposal = find(store, name)
    if proposal.decision:
        raise BadInput(f"proposal {name!r} was {proposal.decision} already; submit a new change with `evolve playbook`")
    return proposal


def _decide(store: Store, kind: str, proposal: Proposal, data: dict[str, Any]) -> None:
    store.append(
        Event(type=kind, namespace=proposal.namespace, run_id=proposal.run_id, subject=proposal.op.op_id, data=data)
    )
