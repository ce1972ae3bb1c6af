"""Decide which parts of a change are admitted, by leaving things out one by one. Pure; runs nothing.

A change that came with others, or a part of its text, can be carried in by what stands beside it. So each is left out
in turn (ablation): what nothing misses is not admitted. Where no episode depends on chance, one task that comes less
far without it is proof. Elsewhere the sign test has to reach `level`, as two runs of the same task differ anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import Field

from evolve.statistics.decision import Decision
from evolve.statistics.paired import p_better, pair
from evolve.statistics.partial_progress import further
from memory.operations import reworded
from memory.records import DeltaOp, Frozen, Op, Status, Trust, Verdict
from playbooks.parts import Part, said, shortened


class Rules(Frozen):
    """The settings of a decision."""

    exact: bool
    """No episode depends on chance: every difference is an effect."""
    level: float = Field(default=0.1, gt=0, lt=1)
    """Where chance decides too: the p-value, one-sided, that what is left out has to reach."""


class Left(Frozen):
    """One thing that was left out, and how the same tasks went without and with it."""

    parts: tuple[Part, ...] = ()
    """Which parts of the text; none = the whole change."""
    cohort: tuple[str, ...]
    without: dict[str, bool | None]
    with_it: dict[str, bool | None]
    reach: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Task id -> how far it came without and with it."""
    harm_only: bool = False
    """It is only asked what harm it does: that it helps was seen before, or its author is trusted."""

    def signs(self) -> tuple[int, int, int]:
        """Return in how many tasks it is missed, in how many better left out, and how many more pass with it."""
        if not self.cohort:
            return 0, 0, 0
        ahead, behind = further(self.cohort, self.without, self.with_it, self.reach)
        found = pair(self.cohort, self.without, self.with_it)
        return len(ahead), len(behind), len(found.gained) - len(found.lost)

    def matters(self, rules: Rules) -> bool:
        """Tell whether it was seen to matter."""
        ahead, behind, more = self.signs()
        if self.harm_only:
            enough = ahead > behind or not behind
        else:
            enough = ahead > behind if rules.exact else p_better(ahead, behind) <= rules.level
        return enough and more >= 0


class AblationTrial(Frozen):
    """What was observed of one change."""

    parts: tuple[Part, ...] = ()
    """All parts of its text; none where it is not divided."""
    left: tuple[Left, ...] = ()
    """In the order in which they were left out; what did not matter stayed out."""
    rest: Left | None = None
    """What is left of all changes of the look together, beside none of them."""


def decide(trial: AblationTrial, rules: Rules) -> Decision:
    """Accept what is seen to matter of a change, and refuse a change of which nothing does."""
    cut = tuple(part for each in trial.left if not each.matters(rules) for part in each.parts)
    idle = [each for each in trial.left if not each.parts and not each.matters(rules)]
    reason = f"{len(trial.parts) - len(cut)} of {len(trial.parts)} parts were seen to matter"
    if idle:
        ahead, behind, _ = idle[0].signs()
        reason = f"left out beside the others, it is missed in {ahead} tasks and better so in {behind}"
    elif trial.parts and set(cut) == set(trial.parts):
        reason = "no part of it was seen to matter"
    elif not trial.parts:
        reason = "seen to matter beside the others"
    if trial.rest is not None and not trial.rest.matters(Rules(exact=True)):
        reason, idle = "what is left of the changes does not help without what was left out", [trial.rest]
    accepted = not idle and not (trial.parts and set(cut) == set(trial.parts))
    return Decision(
        accepted=accepted,
        reason=reason,
        status=Status.PROVISIONAL if accepted else Status.REJECTED,
        evidence={
            "trial": trial.model_dump(mode="json"),
            "rules": rules.model_dump(mode="json"),
            "statistics": {
                "cut": [list(part) for part in cut],
                "signs": [list(each.signs()) for each in trial.left],
            },
        },
    )


def replay(evidence: Mapping[str, Any]) -> Decision:
    """Decide again from what a decision recorded."""
    return decide(AblationTrial.model_validate(evidence["trial"]), Rules.model_validate(evidence["rules"]))


def cut_of(decision: Decision) -> tuple[Part, ...]:
    """Return the parts that a decision leaves out of what it accepts."""
    return tuple(Part(*each) for each in decision.evidence["statistics"]["cut"])


def promising(left: Sequence[Left]) -> bool:
    """Tell whether what was left out last is missed more often than not: chance may have hidden that it matters."""
    ahead, behind, more = left[-1].signs() if left else (0, 0, 0)
    return ahead > behind and more >= 0


def reduced(op: DeltaOp, cut: Collection[Part]) -> DeltaOp | None:
    """Return a change without some parts of its text; None when it would say nothing.

    What would have brought a text back as it is replaces it by the shorter one.
    """
    if not cut:
        return op
    payload = shortened(op.kind, op.payload or {}, cut)
    if not payload:
        return None
    short = reworded(op, payload)
    if op.op is Op.RESTORE and op.provenance.trust is Trust.IMPORTED:  # may be shown; `active` by a later look only
        return short.model_copy(update={"status": Status.PROVISIONAL})
    return short


def cut_in(verdict: Verdict, op_id: str) -> tuple[Part, ...]:
    """Return the parts of a change that a verdict does not admit."""
    return tuple(Part(*each) for each in verdict.cut.get(op_id, ()))


def remainder(op: DeltaOp, cut: Collection[Part]) -> DeltaOp:
    """Return the parts that were cut off from a change, as a new text that waits by itself."""
    words = " ".join(said(op.kind, op.payload, part) for part in sorted(cut))
    return DeltaOp(
        op=Op.ADD,
        op_id=f"{op.op_id}/cut",
        payload={"content": words},
        provenance=op.provenance,
        reason="cut off by a gate: nothing that was run showed that it matters",
    )
