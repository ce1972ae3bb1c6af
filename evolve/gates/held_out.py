"""Gate `held_out`: tasks that no knowledge was written from, run with and without the change on the same seeds.

Two modes. `strict`: one-sided exact McNemar, at a level that `evolve.statistics.alpha` gives. `practical`, for fewer
tasks: a net gain that noise alone rarely makes, few tasks lost beyond what is lost without any change (A/A), and no
protected slice worse. Both record the p-value. Each look has a seed of its own, for both arms: were the base run once
and kept, its bad luck would speak for every candidate that follows. Never run on the report split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from evolve.gates.base import MeasuringGate
from evolve.seeds import seed_for
from evolve.statistics.alpha import ALPHA, Look, level
from evolve.statistics.decision import Decision, Evaluate
from evolve.statistics.paired import Paired, p_better, pair
from memory.errors import BadInput
from memory.records import DeltaOp, Frozen, Status, Task, Trajectory, Verdict


class Rules(Frozen):
    """The settings of a decision."""

    mode: Literal["strict", "practical"] = "practical"
    alpha: float = Field(default=ALPHA, gt=0, lt=1)
    """Strict: share of useless changes among the accepted that is allowed in the long run."""
    min_delta: float = Field(default=0.0, ge=0, lt=1)
    """Practical: least net gain as a share of the tasks; one task in any case."""
    max_p: float = Field(default=0.15, gt=0, le=1)
    """Practical: largest one-sided p-value. 0.15 asks for 3 wins without a loss, 5 of 6, 6 of 8: the margin grows with
    the flips seen, so it needs no estimate of the noise. 1 leaves it out."""
    cap: float = Field(default=0.02, ge=0, lt=1)
    """Practical: share of tasks that may be lost above the A/A floor."""
    enough: int = Field(default=50, ge=1)
    """Below so many tasks what is accepted is provisional, not active."""


class Trial(Frozen):
    """What was observed."""

    cohort: tuple[str, ...]
    base: dict[str, bool | None]
    candidate: dict[str, bool | None]
    again: dict[str, bool | None] | None = None
    """The base once more with another seed (A/A); practical mode needs it."""
    slices: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Protected slices: name -> ids of tasks of the cohort."""
    past: tuple[Look, ...] = ()
    """Strict: every look before this one."""


def decide(trial: Trial, rules: Rules | None = None) -> Decision:
    """Accept iff the mode's conditions all hold; the reason names those that do not.

    Raises `BadInput` for an empty cohort, a slice outside of it, a missing A/A run or a past that breaks its own rule.
    """
    rules = rules or Rules()
    found = pair(trial.cohort, trial.base, trial.candidate)
    computed, failed = (_strict if rules.mode == "strict" else _practical)(trial, rules, found)
    counts = f"gained {len(found.gained)} and lost {len(found.lost)} of {found.n} held-out tasks"
    status = Status.ACTIVE if found.n >= rules.enough else Status.PROVISIONAL
    return Decision(
        accepted=not failed,
        reason="; ".join([counts, *failed]),
        status=Status.REJECTED if failed else status,
        evidence={
            "trial": trial.model_dump(mode="json"),
            "rules": rules.model_dump(mode="json"),
            "statistics": found.statistics | computed,
        },
    )


def replay(evidence: Mapping[str, Any]) -> Decision:
    """Decide again from what a decision recorded."""
    return decide(Trial.model_validate(evidence["trial"]), Rules.model_validate(evidence["rules"]))


def _strict(trial: Trial, rules: Rules, found: Paired) -> tuple[dict[str, Any], list[str]]:
    allowed = level(trial.past, rules.alpha)
    p = p_better(len(found.gained), len(found.lost))
    return {"level": allowed}, [] if p <= allowed else [f"p = {p:.3g} is above {allowed:.3g}, the level of this look"]


def _practical(trial: Trial, rules: Rules, found: Paired) -> tuple[dict[str, Any], list[str]]:
    if trial.again is None:
        raise BadInput("practical mode got no A/A run, expected the base run twice; run it again with another seed")
    noise = pair(trial.cohort, trial.base, trial.again)
    floor = (len(noise.gained) + len(noise.lost)) / (2 * noise.n)
    won, lost = len(found.gained), len(found.lost)
    needed = max(1.0, rules.min_delta * found.n)
    balance = {name: _balance(trial, name, found) for name in trial.slices}
    p = p_better(won, lost)
    conditions = {
        f"the net gain {won - lost} is below {needed:g}": won - lost >= needed - 1e-9,
        "nothing was gained": won >= 1,
        f"p = {p:.3g} is above {rules.max_p:g}": p <= rules.max_p,
        f"lost more than {floor:.3g} (A/A) + {rules.cap:g}": lost / found.n <= floor + rules.cap + 1e-9,
    } | {f"protected slice {name!r} fell by {-change}": change >= 0 for name, change in balance.items()}
    return {"floor": floor, "slices": balance}, [text for text, holds in conditions.items() if not holds]


def _balance(trial: Trial, name: str, found: Paired) -> int:
    tasks = set(trial.slices[name])
    if not tasks or tasks - set(trial.cohort):
        raise BadInput(f"slice {name!r} got {sorted(tasks)}, expected tasks of the cohort; run the slice's tasks too")
    return len(tasks & set(found.gained)) - len(tasks & set(found.lost))


def looks(verdicts: Iterable[Verdict]) -> tuple[Look, ...]:
    """Return the strict looks among journalled verdicts, in order: the past of the next one."""
    strict = [v.evidence for v in verdicts if v.gate == HeldOut.name and v.evidence and _mode(v) == "strict"]
    return tuple(Look(p=each["statistics"]["p_better"], accepted=replay(each).accepted) for each in strict)


def _mode(verdict: Verdict) -> str:
    return Rules.model_validate(verdict.evidence["rules"]).mode


class HeldOut(MeasuringGate):
    """Runs the select split with and without the ops, and in practical mode once more without."""

    name = "held_out"

    def __init__(
        self,
        evaluate: Evaluate,
        tasks: Sequence[Task],
        seed: int,
        *,
        rules: Rules | None = None,
        slices: Mapping[str, Sequence[str]] | None = None,
        past: Callable[[], Sequence[Look]] = tuple,
    ) -> None:
        super().__init__(evaluate, seed)
        self._tasks, self._rules, self._past = tuple(tasks), rules or Rules(), past
        self._slices = {name: tuple(ids) for name, ids in (slices or {}).items()}

    async def _measure(self, changed: Sequence[DeltaOp], trajectories: Sequence[Trajectory], seed: int) -> Decision:
        practical = self._rules.mode == "practical"
        trial = Trial(
            cohort=tuple(task.id for task in self._tasks),
            base=dict(await self._evaluate(None, self._tasks, seed)),
            candidate=dict(await self._evaluate(changed, self._tasks, seed)),
            again=dict(await self._evaluate(None, self._tasks, seed_for(seed, "A/A"))) if practical else None,
            slices=self._slices,
            past=() if practical else tuple(self._past()),
        )
        return decide(trial, self._rules)
