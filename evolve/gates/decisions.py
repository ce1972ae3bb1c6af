"""Several decisions in one verdict: which ops each was about, what became of every op, and the same again from JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.gates import ablation_rules
from evolve.statistics.decision import Decision
from memory.records import DeltaOp, Status, Verdict

HELD_BACK = "held_back"
"""Evidence: op_id -> why it waits for a person although it measured well."""
Replay = Callable[[Mapping[str, Any]], Decision]


@dataclass(frozen=True)
class Round:
    """One decision about some ops. An op that was in several stands as the last one left it."""

    ops: tuple[str, ...]
    decision: Decision


def verdict_of(
    gate: str,
    ops: Sequence[DeltaOp],
    rounds: Sequence[Round],
    waiting: Mapping[str, str],
    ablated: Sequence[Round] = (),
) -> Verdict:
    """Return the verdict over `ops`: `waiting` is deferred, what no round was about (counters) passes.

    `ablated` says of changes that a round accepted what was seen to matter of each (`evolve.gates.ablation`).
    """
    return _sorted(gate, [op.op_id for op in ops], rounds, waiting, ablated)


def evidence_of(made: Round) -> dict[str, Any]:
    """Return what is journalled of a round."""
    return {"ops": list(made.ops), **made.decision.evidence}


def rounds_of(verdict: Verdict) -> tuple[dict[str, Any], ...]:
    """Return the evidence of each decision of a verdict that rests on tasks that were run, in order."""
    if "rounds" in verdict.evidence:
        return tuple(verdict.evidence["rounds"])
    return (verdict.evidence,) if "trial" in verdict.evidence else ()


def held_back(verdict: Verdict, reasons: Mapping[str, str]) -> Verdict:
    """Return the verdict with some of what it accepted refused, whatever was measured: it waits for a person."""
    if not reasons:
        return verdict
    return verdict.model_copy(
        update={
            "accepted": tuple(key for key in verdict.accepted if key not in reasons),
            "rejected": verdict.rejected | dict(reasons),
            "evidence": verdict.evidence | {HELD_BACK: dict(reasons)},
        }
    )


def ablated_of(verdict: Verdict) -> tuple[dict[str, Any], ...]:
    """Return the evidence of each change of which was asked what matters."""
    return tuple(verdict.evidence.get("ablated", ()))


def redecided(verdict: Verdict, replay: Replay) -> Verdict:
    """Return the verdict as its evidence gives it: equal to `verdict` unless somebody or something changed it."""
    reasons: dict[str, str] = verdict.evidence.get(HELD_BACK, {})
    if reasons:
        before = [key for key in (*verdict.accepted, *verdict.rejected) if key not in verdict.deferred]
        asked = verdict.model_copy(update={"accepted": tuple(before), "rejected": {}})
        return held_back(redecided(_without(asked), replay), reasons)
    if not rounds_of(verdict):
        return verdict
    if "rounds" not in verdict.evidence:
        decision = replay(verdict.evidence)
        refused = {} if decision.accepted else dict.fromkeys(verdict.rejected, decision.reason)
        status = decision.status if decision.accepted else Status.PROVISIONAL
        passed = verdict.accepted if decision.accepted or verdict.rejected else ()
        return verdict.model_copy(
            update={"accepted": passed, "rejected": refused, "status": status, "evidence": decision.evidence}
        )
    rounds = [Round(tuple(each["ops"]), replay(each)) for each in rounds_of(verdict)]
    ids = [*verdict.accepted, *verdict.rejected, *verdict.deferred]
    ablated = [Round(tuple(each["ops"]), ablation_rules.replay(each)) for each in ablated_of(verdict)]
    return _sorted(verdict.gate, ids, rounds, verdict.deferred, ablated)


def _without(verdict: Verdict) -> Verdict:
    """Return the verdict before anything was held back."""
    return verdict.model_copy(
        update={"evidence": {key: value for key, value in verdict.evidence.items() if key != HELD_BACK}}
    )


def _sorted(
    gate: str, ids: Sequence[str], rounds: Sequence[Round], waiting: Mapping[str, str], ablated: Sequence[Round]
) -> Verdict:
    looked = {op_id: each.decision for each in rounds for op_id in each.ops}
    parts = {op_id: each.decision for each in ablated for op_id in each.ops}
    last = looked | parts
    rejected = {key: last[key].reason for key in ids if key in last and key not in waiting and not last[key].accepted}
    accepted = tuple(key for key in ids if key not in rejected and key not in waiting)
    statuses = {looked[key].status for key in accepted if key in looked}
    cut = {key: ablation_rules.cut_of(parts[key]) for key in accepted if key in parts}
    evidence = {
        name: [evidence_of(each) for each in some] for name, some in (("rounds", rounds), ("ablated", ablated)) if some
    }
    return Verdict(
        gate=gate,
        accepted=accepted,
        rejected=rejected,
        deferred={key: waiting[key] for key in ids if key in waiting},
        cut={key: tuple((part.field, part.start, part.end) for part in some) for key, some in cut.items() if some},
        status=Status.ACTIVE if statuses == {Status.ACTIVE} else Status.PROVISIONAL,
        evidence=evidence,
    )
