"""The decision of gate `held_out`: from what was observed to accepted or not, in two modes. Pure; runs nothing.

`strict`: one-sided exact McNemar, at a level that `evolve.statistics.alpha` gives. `practical`, for fewer tasks: a net
gain that noise alone rarely makes, few tasks lost beyond what is lost without any change (the floor), and no protected
slice worse. Both record the p-value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from evolve.config.model import Config
from evolve.config.tables import Section
from evolve.gates.decisions import rounds_of
from evolve.statistics.alpha import ALPHA, Look, level
from evolve.statistics.decision import Decision
from evolve.statistics.paired import Paired, p_better, pair
from evolve.statistics.partial_progress import further
from evolve.statistics.spending import after, level_of, stages
from memory.errors import BadInput
from memory.records import Frozen, Status, Trust, Verdict

NAME = "held_out"


class Rules(Frozen):
    """The settings of a decision."""

    mode: Literal["strict", "practical"] = "practical"
    alpha: float = Field(default=ALPHA, gt=0, lt=1)
    """Strict: share of useless changes among the accepted that is allowed in the long run."""
    min_delta: float = Field(default=0.0, ge=0, lt=1)
    """Practical: least net gain as a share of the tasks; one task in any case."""
    error: float = Field(default=0.1, gt=0, lt=1)
    """Practical: chance that a change that does nothing is accepted, over all looks at it. 0.1 asks for 5 wins without
    a loss at first, 7 of 8, 9 of 11: the margin grows with the flips seen, so it needs no estimate of the noise."""
    cap: float = Field(default=0.02, ge=0, le=1)
    """Practical: share of tasks that may be lost above the floor (`floor`)."""
    progress: bool = True
    """Practical: tasks that came further count beside those that passed; else success alone."""
    first: int = Field(default=12, ge=1)
    """Practical: tasks of the first stage of a look; as many as there are, and there is but one stage."""
    enough: int = Field(default=50, ge=1)
    """Below so many tasks what is accepted is provisional, not active."""
    trust: Trust = Trust.SELF_JUDGED
    """Least trust of a text that is not divided where chance decides (`evolve.gates.ablation`)."""


class Options(Section):
    """How it is decided on tasks that no lesson was written from, those of `run.dev_split`."""

    tasks: int | None = Field(default=None, ge=1)
    """How many tasks of the split, in proportion by family or scenario; none = all. Gate `utility` and candidates of a
    training are measured on the same."""
    first_stage: int = Field(default=Rules().first, ge=1)
    """Tasks of a practical look's first stage; where the answer is not plain, twice as many follow, up to all."""
    slices: str | None = None
    """Key of the tasks' metadata (`family`, say): nothing is accepted after which fewer tasks of a kind pass."""
    mode: Literal["practical", "strict"] = Rules().mode
    """How it decides: by a net gain above the noise, or by exact McNemar with alpha spending (100 tasks up)."""
    alpha: float = Field(default=Rules().alpha, gt=0, lt=1)
    """Strict: share of useless changes among the accepted that is allowed in the long run."""


def options_of(config: Config) -> Options:
    """Return the options of the gate, which others heed as well. Raises `ConfigError` as `read`."""
    return config.gate.of(NAME, Options)


class HeldOutTrial(Frozen):
    """What was observed. A task of the cohort that is shown the same in both arms was not run and has no mark."""

    cohort: tuple[str, ...]
    base: dict[str, bool | None]
    candidate: dict[str, bool | None]
    again: dict[str, bool | None] | None = None
    """The base once more with another seed (A/A); practical mode needs it when more is lost than the cap allows."""
    placebo: dict[str, bool | None] | None = None
    """The base with one more text, which says nothing; asked for where A/A flips nothing, as with a greedy policy."""
    reach: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Task id -> how far it came in the base and in the candidate; without it success alone counts."""
    slices: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Protected slices: name -> ids of tasks of the cohort."""
    left: float | None = None
    """Practical: what earlier looks left of the error of these changes; none = there were no earlier looks."""
    guarded: int = 0
    """Practical: so many tasks have to be run, those of all protected slices, before anything is accepted."""
    past: tuple[Look, ...] = ()
    """Strict: every look before this one."""
    thrift: bool = False
    """The change is code alone: tokens counted."""


def decide(trial: HeldOutTrial, rules: Rules | None = None) -> Decision:
    """Accept iff the mode's conditions all hold; the reason names those that do not.

    Raises `BadInput` for an empty cohort, a slice outside of it, a missing A/A run or a past that breaks its own rule.
    """
    rules = rules or Rules()
    found = pair(trial.cohort, trial.base, trial.candidate)
    computed, failed = (_strict if rules.mode == "strict" else _practical)(trial, rules, found)
    counts = f"gained {len(found.gained)} and lost {len(found.lost)} of {found.n} held-out tasks"
    if trial.reach and rules.mode == "practical":
        counts += f", further in {computed['ahead']} and less far in {computed['behind']}"
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
    return decide(HeldOutTrial.model_validate(evidence["trial"]), Rules.model_validate(evidence["rules"]))


def _strict(trial: HeldOutTrial, rules: Rules, found: Paired) -> tuple[dict[str, Any], list[str]]:
    allowed = level(trial.past, rules.alpha)
    won, lost = len(found.gained), len(found.lost)
    p = p_better(won, lost)
    computed = {"level": allowed, "ahead": won, "behind": lost}
    return computed, [] if p <= allowed else [f"p = {p:.3g} is above {allowed:.3g}, the level of this look"]


def _practical(trial: HeldOutTrial, rules: Rules, found: Paired) -> tuple[dict[str, Any], list[str]]:
    ahead, behind = _further(trial, trial.cohort)
    allowed, left = _spent(trial, rules)
    won, lost = len(found.gained), len(found.lost)
    noise = floor(trial)
    if noise is None and lost / found.n > rules.cap + 1e-9:
        raise BadInput("practical mode got no A/A run, expected the base run twice; run it again with another seed")
    needed = max(1.0, rules.min_delta * found.n)
    balance = {name: _balance(trial, name, found) for name in trial.slices}
    p = p_better(ahead, behind)
    conditions = {
        f"the net gain {ahead - behind} is below {needed:g}": ahead - behind >= needed - 1e-9,
        "nothing was gained": ahead >= 1,
        f"p = {p:.3g} is above {allowed:.3g}, the level of this look": p <= allowed,
        f"{lost - won} fewer tasks pass": won >= lost or not trial.reach,
        f"lost more than {noise or 0:.3g} (floor) + {rules.cap:g}": lost / found.n <= (noise or 0) + rules.cap + 1e-9,
    } | {f"protected slice {name!r} fell by {-change}": change >= 0 for name, change in balance.items()}
    computed = {"floor": noise, "slices": balance, "ahead": ahead, "behind": behind, "max_p": allowed, "left": left}
    return computed, [text for text, holds in conditions.items() if not holds]


def _further(trial: HeldOutTrial, cohort: Sequence[str]) -> tuple[int, int]:
    ahead, behind = further(cohort, trial.base, trial.candidate, trial.reach)
    return len(ahead), len(behind)


def _spent(trial: HeldOutTrial, rules: Rules) -> tuple[float, float]:
    """Return the level of the last stage of a look, 0 where it can accept nothing, and what is left of the error."""
    allowed, left = 0.0, rules.error if trial.left is None else trial.left
    before: int | None = None
    for size in stages(len(trial.cohort), rules.first):
        flipped = sum(_further(trial, trial.cohort[:size]))
        if size >= trial.guarded and flipped != before:  # the same flips are no second chance
            allowed, left, before = level_of(left), after(left, flipped), flipped
    return allowed, left


def floor(trial: HeldOutTrial) -> float | None:
    """Return the share of tasks that flip one way when nothing changes that matters; None without an A/A run.

    A greedy policy answers the same prompt in the same way, and any other prompt, even one with a text that says
    nothing, changes some of its answers. That is noise as well.
    """
    if trial.again is None:
        return None
    runs = (trial.again, trial.placebo or trial.base)
    noise = [pair(trial.cohort, trial.base, run) for run in runs]
    return max((len(each.gained) + len(each.lost)) / (2 * each.n) for each in noise)


def _balance(trial: HeldOutTrial, name: str, found: Paired) -> int:
    tasks = set(trial.slices[name])
    if not tasks or tasks - set(trial.cohort):
        raise BadInput(f"slice {name!r} got {sorted(tasks)}, expected tasks of the cohort; run the slice's tasks too")
    return len(tasks & set(found.gained)) - len(tasks & set(found.lost))


def looks(verdicts: Iterable[Verdict]) -> tuple[Look, ...]:
    """Return the strict looks among journalled verdicts, in order: the past of the next one."""
    return strict_looks(each for v in verdicts if v.gate == NAME for each in rounds_of(v))


def strict_looks(found: Iterable[Mapping[str, Any]]) -> tuple[Look, ...]:
    """Return the strict looks among the evidence of several, in order."""
    strict = (each for each in found if Rules.model_validate(each["rules"]).mode == "strict")
    return tuple(look_of(replay(each)) for each in strict)


def look_of(decision: Decision) -> Look:
    """Return what a later strict look has to know of a decision."""
    found = decision.evidence["statistics"]
    return Look(p=found["p_better"], accepted=decision.accepted, level=found.get("level"))
