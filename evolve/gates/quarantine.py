"""Keeps what is too little trusted out of prompts: stored, listed, and recalled only once somebody measured or read it.

A new text becomes a `candidate`, which no recall finds; `evolve playbook list --quarantined` shows it. A change of what
is recalled already cannot be stored beside it, so it waits in the review queue.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from evolve.episode.trust import text_of
from evolve.gates.decisions import ablated_of, rounds_of
from memory.records import DeltaOp, Op, Record, Status, Trust, Verdict
from playbooks.similarity import exact_key

ADMITS = frozenset({"exemplars", "held_out", "utility"})
"""Gates whose yes rests on fresh runs of tasks that the text was not written from."""


def withhold(
    ops: Sequence[DeltaOp], verdicts: Sequence[Verdict], floor: Trust, before: Collection[str] = ()
) -> tuple[tuple[DeltaOp, ...], tuple[DeltaOp, ...]]:
    """Return (ops to apply, ops for the review queue). Counters (TAG) pass; so does what `verdicts` say was measured.

    `verdicts` are those that accepted the ops, `before` names ops that were measured earlier and waited, `floor` is the
    least trust that needs no measurement.
    """
    found = [verdict for verdict in verdicts if verdict.gate in ADMITS]
    measured = {*before, *(key for verdict in found for key in measured_in(verdict))}
    apply: list[DeltaOp] = []
    review: list[DeltaOp] = []
    for op in ops:
        if op.op is Op.TAG or op.provenance.trust.reaches(floor) or op.op_id in measured:
            apply.append(op)
        elif op.op is Op.ADD:
            apply.append(op.model_copy(update={"status": Status.CANDIDATE, "pinned": False}))
        else:
            review.append(op)
    return tuple(apply), tuple(review)


def measured_in(verdict: Verdict) -> frozenset[str]:
    """Return the ops that a verdict accepted and that one of its decisions is about: others it let pass unmeasured."""
    about = {key for each in (*rounds_of(verdict), *ablated_of(verdict)) for key in each.get("ops", verdict.accepted)}
    return frozenset(verdict.accepted) & about


def is_held(op: DeltaOp) -> bool:
    """Tell whether the op stores a text in quarantine."""
    return op.op is Op.ADD and op.status is Status.CANDIDATE


def unheld(ops: Sequence[DeltaOp], records: Sequence[Record[Any]]) -> tuple[DeltaOp, ...]:
    """Return the ops without those that would quarantine a text again: a text that keeps arriving is stored once."""
    held = {exact_key(record.payload.text()) for record in records if record.status is Status.CANDIDATE}
    kept: list[DeltaOp] = []
    for op in ops:
        key = exact_key(text_of(op)) if is_held(op) else ""
        if key not in held:
            kept.append(op)
        if key:
            held.add(key)
    return tuple(kept)


def restoring(record: Record[Any], op_id: str) -> DeltaOp:
    """Return the proposal to show a quarantined text from now on, as it reads now."""
    return DeltaOp(
        op=Op.RESTORE,
        op_id=op_id,
        kind=record.kind,
        target_id=record.id,
        base_version=record.version,
        payload=record.payload.model_dump(mode="json"),
        provenance=record.provenance,
        reason="passed the gates",
    )
