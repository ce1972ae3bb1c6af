"""Gate `held_out`: tasks that no knowledge was written from, run with and without the change on the same seeds.

Two modes. `strict`: one-sided exact McNemar, at a level that `evolve.statistics.alpha` gives. `practical`, for fewer
tasks: a net gain that noise alone rarely makes, few tasks lost beyond what is lost without any change (A/A), and no
protected slice worse. Both record the p-value. Each look has a seed of its own, for both arms: were the base run once
and kept, its bad luck would speak for every candidate that follows. Never run on the report split.

A practical look goes in stages: `first` tasks, then twice as many, up to all, until the answer is plain; all stages of
all looks at a change spend of one small error (`evolve.statistics.spending`). Nothing is accepted before all tasks of
the protected slices were run, A/A runs only where the answer hangs on it. Which ops: `evolve.gates.search`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from evolve.gates.purse import OutOfCalls
from evolve.gates.rounds import Round, evidence_of, rounds_of, verdict_of
from evolve.gates.search import search
from evolve.gates.spent import Evidence, left_of
from evolve.seeds import seed_for
from evolve.statistics.alpha import ALPHA, Look, level
from evolve.statistics.decision import Decision, Evaluate, apart, changes, differing, unmeasured
from evolve.statistics.paired import Paired, Passed, p_better, pair
from evolve.statistics.progress import further, reaches
from evolve.statistics.spending import after, level_of, stages
from memory.errors import BadInput
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Status, Task, Trajectory, Verdict
from skills.record import Skill

PATIENCE = 3
"""Looks after which a change that seems good, and is not seen to be, is refused."""


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
    cap: float = Field(default=0.02, ge=0, lt=1)
    """Practical: share of tasks that may be lost above the A/A floor."""
    first: int = Field(default=12, ge=1)
    """Practical: tasks of the first stage of a look; as many as there are, and there is but one stage."""
    enough: int = Field(default=50, ge=1)
    """Below so many tasks what is accepted is provisional, not active."""


class Trial(Frozen):
    """What was observed. A task of the cohort that is shown the same in both arms was not run and has no mark."""

    cohort: tuple[str, ...]
    base: dict[str, bool | None]
    candidate: dict[str, bool | None]
    again: dict[str, bool | None] | None = None
    """The base once more with another seed (A/A); practical mode needs it when more is lost than the cap allows."""
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


def decide(trial: Trial, rules: Rules | None = None) -> Decision:
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
    return decide(Trial.model_validate(evidence["trial"]), Rules.model_validate(evidence["rules"]))


def _strict(trial: Trial, rules: Rules, found: Paired) -> tuple[dict[str, Any], list[str]]:
    allowed = level(trial.past, rules.alpha)
    won, lost = len(found.gained), len(found.lost)
    p = p_better(won, lost)
    computed = {"level": allowed, "ahead": won, "behind": lost}
    return computed, [] if p <= allowed else [f"p = {p:.3g} is above {allowed:.3g}, the level of this look"]


def _practical(trial: Trial, rules: Rules, found: Paired) -> tuple[dict[str, Any], list[str]]:
    ahead, behind = _further(trial, trial.cohort)
    allowed, left = _spent(trial, rules)
    won, lost = len(found.gained), len(found.lost)
    floor = _floor(trial)
    if floor is None and lost / found.n > rules.cap + 1e-9:
        raise BadInput("practical mode got no A/A run, expected the base run twice; run it again with another seed")
    needed = max(1.0, rules.min_delta * found.n)
    balance = {name: _balance(trial, name, found) for name in trial.slices}
    p = p_better(ahead, behind)
    conditions = {
        f"the net gain {ahead - behind} is below {needed:g}": ahead - behind >= needed - 1e-9,
        "nothing was gained": ahead >= 1,
        f"p = {p:.3g} is above {allowed:.3g}, the level of this look": p <= allowed,
        f"{lost - won} fewer tasks pass": won >= lost or not trial.reach,
        f"lost more than {floor or 0:.3g} (A/A) + {rules.cap:g}": lost / found.n <= (floor or 0) + rules.cap + 1e-9,
    } | {f"protected slice {name!r} fell by {-change}": change >= 0 for name, change in balance.items()}
    computed = {"floor": floor, "slices": balance, "ahead": ahead, "behind": behind, "max_p": allowed, "left": left}
    return computed, [text for text, holds in conditions.items() if not holds]


def _further(trial: Trial, cohort: Sequence[str]) -> tuple[int, int]:
    ahead, behind = further(cohort, trial.base, trial.candidate, trial.reach)
    return len(ahead), len(behind)


def _spent(trial: Trial, rules: Rules) -> tuple[float, float]:
    """Return the level of the last stage of a look, 0 where it can accept nothing, and what is left of the error."""
    allowed, left, before = 0.0, rules.error if trial.left is None else trial.left, -1
    for size in stages(len(trial.cohort), rules.first):
        flipped = sum(_further(trial, trial.cohort[:size]))
        if size >= trial.guarded and flipped != before:  # the same flips are no second chance
            allowed, left, before = level_of(left), after(left, flipped), flipped
    return allowed, left


def _floor(trial: Trial) -> float | None:
    """Return the share of tasks that flip one way when nothing changes; None without an A/A run."""
    if trial.again is None:
        return None
    noise = pair(trial.cohort, trial.base, trial.again)
    return (len(noise.gained) + len(noise.lost)) / (2 * noise.n)


def _balance(trial: Trial, name: str, found: Paired) -> int:
    tasks = set(trial.slices[name])
    if not tasks or tasks - set(trial.cohort):
        raise BadInput(f"slice {name!r} got {sorted(tasks)}, expected tasks of the cohort; run the slice's tasks too")
    return len(tasks & set(found.gained)) - len(tasks & set(found.lost))


def looks(verdicts: Iterable[Verdict]) -> tuple[Look, ...]:
    """Return the strict looks among journalled verdicts, in order: the past of the next one."""
    found = [each for v in verdicts if v.gate == HeldOut.name for each in rounds_of(v)]
    strict = [each for each in found if Rules.model_validate(each["rules"]).mode == "strict"]
    return tuple(_look(replay(each)) for each in strict)


def _look(decision: Decision) -> Look:
    return Look(p=decision.evidence["statistics"]["p_better"], accepted=decision.accepted)


class HeldOut:
    """Runs the select split with and without the ops; `tasks` in an order of which any prefix is a fair sample."""

    name = "held_out"

    def __init__(
        self,
        evaluate: Evaluate,
        tasks: Sequence[Task],
        seed: int,
        *,
        rules: Rules | None = None,
        slices: Mapping[str, Sequence[str]] | None = None,
        past: Callable[[], Sequence[Verdict]] = tuple,
    ) -> None:
        self._evaluate, self.tasks, self._seed = evaluate, tuple(tasks), seed
        self._rules, self._past = rules or Rules(), past
        self._slices = {name: tuple(ids) for name, ids in (slices or {}).items()}
        protected = {task for ids in self._slices.values() for task in ids}
        self._guarded = max((at for at, task in enumerate(self.tasks, 1) if task.id in protected), default=0)

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict on each change, texts first; skills wait while a text waits for calls.

        Counters spend no look, nor do changes that were all looked at together.
        """
        changed = changes(ops)
        if not changed:
            return unmeasured(self.name, ops)
        past, rounds, waiting = self._past(), list[Round](), dict[str, str]()
        short: OutOfCalls | None = None
        for group in apart(changed, Skill.kind):
            if short is not None:
                waiting |= dict.fromkeys((op.op_id for op in group), f"{short}; texts come first")
                continue
            more, left, short = await self._search(group, past, rounds)
            rounds, waiting = [*rounds, *more], waiting | left
        return verdict_of(self.name, ops, rounds, waiting)

    async def _search(
        self, changed: Sequence[DeltaOp], past: Sequence[Verdict], earlier: Sequence[Round]
    ) -> tuple[list[Round], dict[str, str], OutOfCalls | None]:
        """Return what `search` does about some changes, given what was decided before."""
        seen = [each for v in past if v.gate == self.name for each in rounds_of(v)]
        ids = [op.op_id for op in changed]
        if any(sorted(each["ops"]) == sorted(ids) and self._whole(each) for each in seen):
            return [], dict.fromkeys(ids, "waits for more: looked at, and nothing new since"), None

        async def look(
            before: Sequence[DeltaOp], group: Sequence[DeltaOp], rounds: Sequence[Round]
        ) -> tuple[Decision | None, OutOfCalls | None]:
            now = [*earlier, *rounds]
            if self._rules.mode == "strict":
                return await self._strict(before, group, (*looks(past), *(_look(each.decision) for each in now)))
            return await self._practical(before, group, [*seen, *map(evidence_of, now)])

        def tried(op_id: str) -> int:
            return sum(op_id in each["ops"] and self._whole(each) for each in seen)

        return await search(changed, look, tried=tried, patience=PATIENCE)

    def _whole(self, evidence: Mapping[str, Any]) -> bool:
        return len(evidence["trial"]["cohort"]) == len(self.tasks)

    async def _strict(
        self, before: Sequence[DeltaOp], group: Sequence[DeltaOp], past: Sequence[Look]
    ) -> tuple[Decision | None, OutOfCalls | None]:
        try:
            base, candidate = await self._arms(before, group, differing(self._evaluate, before, group, self.tasks))
        except OutOfCalls as short:
            return None, short
        return decide(
            self._trial(self.tasks, base, candidate).model_copy(update={"past": tuple(past)}), self._rules
        ), None

    async def _practical(
        self, before: Sequence[DeltaOp], group: Sequence[DeltaOp], looked: Sequence[Evidence]
    ) -> tuple[Decision | None, OutOfCalls | None]:
        """Decide from as few tasks as will do. Out of calls, it gives what the stages before had to say."""
        rules = self._rules
        decision: Decision | None = None
        for size in stages(len(self.tasks), rules.first):
            tasks = self.tasks[:size]
            try:
                some = differing(self._evaluate, before, group, tasks)
                base, candidate = await self._arms(before, group, some)
                trial = self._trial(tasks, base, candidate)
                now = {"ops": [op.op_id for op in group], "trial": trial.model_dump(mode="json")}
                left = left_of(looked, now, rules.first, rules.error)
                trial = trial.model_copy(update={"left": left, "guarded": self._guarded})
                if len(pair(trial.cohort, base, candidate).lost) / size > rules.cap + 1e-9:
                    again = await self._evaluate(before or None, some, seed_for(self._seed_of(group), "A/A"))
                    trial = trial.model_copy(update={"again": dict(again)})
            except OutOfCalls as short:
                return decision, short
            decision = decide(trial, rules)
            if decision.accepted or self._plain(decision, many=len(group) > 1):
                break
        return decision, None

    def _plain(self, decision: Decision, *, many: bool) -> bool:
        """Tell whether more tasks would not change the answer: it is seen to harm, or what is lost is no noise."""
        statistics = decision.evidence["statistics"]
        ahead, behind, lost = statistics["ahead"], statistics["behind"], len(statistics["lost"])
        if behind and p_better(behind, ahead) <= level_of(self._rules.error):
            return True
        return statistics["floor"] == 0 and (many or lost > self._rules.cap * len(self.tasks) + 1e-9)

    async def _arms(
        self, before: Sequence[DeltaOp], group: Sequence[DeltaOp], tasks: Sequence[Task]
    ) -> tuple[Passed, Passed]:
        seed = self._seed_of(group)
        base = await self._evaluate(before or None, tasks, seed)
        return base, await self._evaluate([*before, *group], tasks, seed)

    def _seed_of(self, group: Sequence[DeltaOp]) -> int:
        return seed_for(self._seed, self.name, *(op.op_id for op in group))

    def _trial(self, tasks: Sequence[Task], base: Passed, candidate: Passed) -> Trial:
        cohort = tuple(task.id for task in tasks)
        inside = {name: tuple(key for key in ids if key in cohort) for name, ids in self._slices.items()}
        return Trial(
            cohort=cohort,
            base=dict(base),
            candidate=dict(candidate),
            reach=reaches(base, candidate),
            slices={name: ids for name, ids in inside.items() if ids},
        )
