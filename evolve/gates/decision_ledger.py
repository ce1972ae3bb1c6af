"""Every decision of a run's gates, as the journal holds it, and made again from its own evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evolve.gates.ablation_rules import cut_in
from evolve.gates.account import REPLAYS, tested
from evolve.gates.decisions import ablated_of, redecided, rounds_of
from evolve.gates.evaluator import episodes_of
from evolve.gates.gate_events import ALLOWANCE, PROPOSAL, WAITING, journalled
from evolve.gates.review import WAITS
from memory import paging
from memory.erasing import ERASED, ERASED_PAYLOAD
from memory.records import DeltaOp, Frozen, Verdict
from memory.store import Store
from playbooks.parts import said


class GateDecision(Frozen):
    """What one gate said about one change."""

    seq: int
    """Place of the verdict in the journal."""
    batch: str
    gate: str
    op_id: str
    op: str
    text: str
    """What the change says."""
    answer: str
    """`accepted`, `rejected`, `deferred`, or `waiting` for a person."""
    reason: str
    status: str
    left_out: tuple[str, ...] = ()
    """Parts of an accepted text that are not in use: nothing that was run was worse without them."""


class Difference(Frozen):
    """A verdict that its evidence does not give."""

    seq: int
    gate: str
    journalled: str
    again: str


class Replayed(Frozen):
    """What replaying a run came to."""

    run_id: str
    verdicts: int
    """Verdicts that rest on runs, all made again."""
    decisions: int
    """Decisions in them."""
    differences: tuple[Difference, ...]


class Spent(Frozen):
    """What the gates of a run had used when its last batch was judged, and may use."""

    calls: int
    allowed: float
    waiting: int
    """Changes that wait to be judged."""


def entries(store: Store, run_id: str) -> tuple[GateDecision, ...]:
    """Return what every gate said about every change of a run, in order; counters (TAG) are left out."""
    ops = _ops(store, run_id)
    found: list[GateDecision] = []
    for event, verdict in journalled(store, run_id=run_id):
        for op_id, answer, reason in _answers(verdict):
            op = ops.get(op_id)
            if op is not None and op.op == "TAG":
                continue
            verb, text = (op.op.value, _text(op)) if op else _tried(store, verdict)
            found.append(
                GateDecision(
                    seq=event.seq,
                    batch=event.subject,
                    gate=verdict.gate,
                    op_id=op_id,
                    op=verb,
                    text=text,
                    answer=answer,
                    reason=reason,
                    status=verdict.status.value if answer == "accepted" else "",
                    left_out=_left_out(verdict, op_id, op),
                )
            )
    return tuple(found)


def last_words(said: Sequence[GateDecision]) -> list[GateDecision]:
    """Return the last that each gate said about each change, the latest first."""
    return list({(each.gate, each.op_id): each for each in said}.values())[::-1]


def replay(store: Store, run_id: str) -> Replayed:
    """Make every measured decision of a run again, from the journal alone, and compare it to the last bit."""
    differences: list[Difference] = []
    verdicts = decisions = 0
    for event, verdict in journalled(store, run_id=run_id):
        if verdict.gate not in REPLAYS or not rounds_of(verdict):
            continue
        verdicts += 1
        decisions += len(rounds_of(verdict))
        again = redecided(verdict, REPLAYS[verdict.gate])
        if again.model_dump(mode="json") != verdict.model_dump(mode="json"):
            said, now = (repr((v.accepted, v.rejected, v.deferred, v.status.value)) for v in (verdict, again))
            if said == now:
                said, now = "evidence as journalled", "evidence that differs"
            differences.append(Difference(seq=event.seq, gate=verdict.gate, journalled=said, again=now))
    return Replayed(run_id=run_id, verdicts=verdicts, decisions=decisions, differences=tuple(differences))


def spent(store: Store, run_id: str, ratio: float) -> Spent | None:
    """Return what the gates of a run used of what they may; None before its first batch was judged."""
    allowance = store.events(type=ALLOWANCE, run_id=run_id)
    if not allowance:
        return None
    waiting = store.events(type=WAITING, run_id=run_id)
    return Spent(
        calls=paging.used(store.journal, episodes_of(run_id))[1].calls,
        allowed=allowance[-1].data.get("allowed", ratio * allowance[-1].data["calls"]),
        waiting=len(waiting[-1].data.get("waiting", ())) if waiting else 0,
    )


def _ops(store: Store, run_id: str) -> dict[str, DeltaOp]:
    """Return every op a run's gates were asked about: all are journalled before any gate sees them.

    Those that a purge erased are left out.
    """
    queues = store.events(type=WAITING, run_id=run_id)
    waited = [item["op"] for event in queues for item in event.data.get("waiting", ())]
    proposed = [op for event in store.events(type=PROPOSAL, run_id=run_id) for op in event.data.get("ops", ())]
    return {op["op_id"]: DeltaOp.model_validate(op) for op in (*waited, *proposed)}


def _answers(verdict: Verdict) -> list[tuple[str, str, str]]:
    reasons = {op_id: each for each in rounds_of(verdict) for op_id in each.get("ops", ())}
    parts = {op_id: each["statistics"]["cut"] for each in ablated_of(verdict) for op_id in each["ops"]}
    accepted = [
        (key, "accepted", _counts(verdict.gate, reasons.get(key)) + _cut(parts.get(key))) for key in verdict.accepted
    ]
    rejected = [(key, "waiting" if reason == WAITS else "rejected", reason) for key, reason in verdict.rejected.items()]
    return [*accepted, *rejected, *((key, "deferred", reason) for key, reason in verdict.deferred.items())]


def _left_out(verdict: Verdict, op_id: str, op: DeltaOp | None) -> tuple[str, ...]:
    if op is None or op.payload == ERASED_PAYLOAD:
        return ()
    return tuple(said(op.kind, op.payload, part) for part in sorted(cut_in(verdict, op_id)))


def _counts(gate: str, evidence: Mapping[str, Any] | None) -> str:
    """Return why a change was accepted, from its last round."""
    if evidence is None or gate not in REPLAYS:
        return ""
    found = evidence["statistics"]
    if "gained" not in found:
        return REPLAYS[gate](evidence).reason
    won, lost = len(found["gained"]), len(found["lost"])
    ahead, behind = found.get("ahead", won), found.get("behind", lost)
    counts = f"gained {won} and lost {lost} of {found['n']} tasks"
    if (ahead, behind) != (won, lost):
        counts += f", further in {ahead} and less far in {behind}"
    return f"{counts}, p = {tested(found):.3g}"


def _cut(parts: Sequence[Any] | None) -> str:
    return f"; {len(parts)} parts of it left out: nothing was worse without them" if parts else ""


def _tried(store: Store, verdict: Verdict) -> tuple[str, str]:
    """Return what a verdict that no proposal stands behind does, and with which text: those of gate `online_ab`."""
    trial = verdict.evidence.get("trial")
    key, _, version = str(trial.get("item", "") if isinstance(trial, Mapping) else "").rpartition("@")
    if not key:
        return "?", ""
    read = next((each for each in store.reader.versions(key) if str(each.version) == version), None)
    return "RESTORE" if verdict.accepted else "REMOVE", read.payload.text() if read else ERASED


def _text(op: DeltaOp) -> str:
    if op.payload == ERASED_PAYLOAD:
        return ERASED
    payload = op.payload or {}
    return str(payload.get("content") or payload.get("subject") or op.reason or op.target_id or "")
