"""Gate `online_ab`: for live streams, whose tasks cannot be run again. No extra calls.

New items are shown from the next batch on, as provisional; while one is under test, chance hides it from a share of the
tasks it would have been shown in. Each item has its own lot, so any number can be under test at once. The bets of
`evolve.statistics.evalues` then say whether it helps: `decide` may be asked after every task, and stopping when it
answers does not raise its error. `active` ends the hiding and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from evolve.config.tables import Section
from evolve.gates.context import GateContext
from evolve.seeds import seed_for
from evolve.statistics.decision import Decision
from evolve.statistics.evalues import Exposure, first_reached, wealth
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Record, Status, Trajectory, Verdict


class Rules(Frozen):
    """The settings of a decision."""

    probability: float = Field(default=0.2, gt=0, le=0.25)
    """Share of the tasks from which an item under test is hidden."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Chance that an item that does not help is ever accepted."""
    harm_alpha: float = Field(default=0.05, gt=0, lt=1)
    """Chance that an item that does no harm is ever refused as harmful."""
    patience: int = Field(default=1000, ge=1)
    """Tasks after which an item that has not been seen to help is given up."""


class Options(Section):
    """How items are tested on a live stream."""

    hide: float = Field(default=Rules().probability, gt=0, le=0.25)
    """Share of the tasks from which an item under test is hidden."""
    error: float = Field(default=Rules().alpha, gt=0, lt=1)
    """Chance that it ever accepts what does not help, or retires what does no harm."""


class OnlineTrial(Frozen):
    """What was observed about one item, in order of time."""

    item: str = ""
    """`<record id>@<version>`: of another text, or after a rollback, nothing was observed yet."""
    exposures: tuple[Exposure, ...] = ()


def decide(trial: OnlineTrial, rules: Rules | None = None) -> Decision:
    """Accept once the item was seen to help; reject once it was seen to harm, or when patience is over; else test on.

    The answer that came first stands: later exposures do not change it. Testing on is `accepted=False`, `provisional`.
    """
    rules = rules or Rules()
    exposures = trial.exposures[: rules.patience]
    helps, harms = wealth(exposures), wealth(exposures, harm=True)
    never = float("inf")
    helped = first_reached(helps, 1 / rules.alpha) or never
    harmed = first_reached(harms, 1 / rules.harm_alpha) or never
    n, accepted = len(exposures), helped < harmed
    best = max(helps, default=1.0)
    seen, needed = (max(harms), 1 / rules.harm_alpha) if harmed < helped else (best, 1 / rules.alpha)
    if accepted:
        status, reason = Status.ACTIVE, f"seen to help after {helped} tasks"
    elif harmed < never:
        status, reason = Status.REJECTED, f"seen to harm after {harmed} tasks"
    elif n == rules.patience:
        status, reason = Status.REJECTED, f"not seen to help in {n} tasks"
    else:
        status, reason = Status.PROVISIONAL, f"under test for {n} tasks"
    return Decision(
        accepted=accepted,
        reason=f"{reason} (evidence {seen:.3g}, needed {needed:g})",
        status=status,
        evidence={
            "trial": trial.model_dump(mode="json"),
            "rules": rules.model_dump(mode="json"),
            "statistics": {
                "helps": helps[-1] if helps else 1.0,
                "harms": harms[-1] if harms else 1.0,
                "p": min(1.0, 1 / best),
                "shown": sum(not each.hidden for each in exposures),
                "hidden": sum(each.hidden for each in exposures),
            },
        },
    )


def replay(evidence: Mapping[str, Any]) -> Decision:
    """Decide again from what a decision recorded."""
    return decide(OnlineTrial.model_validate(evidence["trial"]), Rules.model_validate(evidence["rules"]))


def under_test(record: Record[Any]) -> bool:
    """Tell whether a record is tested where this gate is on: provisional, and not pinned by the operator."""
    return record.status is Status.PROVISIONAL and not record.pinned


def item_of(record: Record[Any]) -> str:
    """Return what is tested: this record, as it reads now."""
    return f"{record.id}@{record.version}"


def draw(shown: Sequence[Record[Any]], task_key: str, seed: int, probability: float) -> dict[str, bool]:
    """Return item -> hidden for those of `shown` that have a lot in a task; `task_key` must never come again.

    Lots are independent. Where everything is under test, one item, drawn first, has no lot and is shown: a task is
    never done without all of its knowledge, and still nothing about one item follows from the lot of another.
    """
    tested = [record for record in shown if under_test(record)]
    if tested and len(tested) == len(shown):
        tested.remove(min(tested, key=lambda record: seed_for(seed, "keep", record.number, task_key)))
    return {item_of(record): hides(seed, str(record.number), task_key, probability) for record in tested}


def hides(seed: int, item: str, task_key: str, probability: float) -> bool:
    """Tell whether an item under test is hidden from a task; `task_key` must differ when a task comes again."""
    return seed_for(seed, "hide", item, task_key) < probability * 2**31


class OnlineAB:
    """Lets new items in under test. Whether they stay is `decide`'s answer, from the tasks that follow."""

    name = "online_ab"

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict that admits all ops as provisional, with the rules of the test that begins."""
        evidence = {"rules": self.rules.model_dump(mode="json")}
        return Verdict(gate=self.name, accepted=tuple(op.op_id for op in ops), evidence=evidence)


def make(context: GateContext, options: Options) -> OnlineAB:
    """Return the gate. Raises `ConfigError` where no outcome may be read."""
    context.refuse_label_free(OnlineAB.name)
    return OnlineAB(Rules(probability=options.hide, alpha=options.error, harm_alpha=options.error))


MEMBER = make
