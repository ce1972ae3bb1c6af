"""Gate `utility`: how much a change is worth, from matched groups of fresh runs with and without it.

    u = mean over tasks of (success rate with the change - success rate without it)

as in SAPO's marginal utility (arXiv 2606.08755), with its two gaps closed: no run is one that the change was written
from, and a lower confidence bound decides, not the sign. It does not rank changes and knows no redundancy.

Skills are measured apart. Theirs is the share of tasks that come further with them less that of tasks that come less
far, by `evolve.statistics.partial_progress`, where the tokens written count last; and no fewer tasks may pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from evolve.config.tables import Section
from evolve.gates.ablation import Ablation, Seen
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.context import GateContext
from evolve.gates.decisions import Round, verdict_of
from evolve.gates.splits import select_tasks
from evolve.seeds import seed_for
from evolve.statistics.decision import Decision, Evaluate, apart, changes, drawn_by
from evolve.statistics.evalues import mean_bound
from evolve.statistics.paired import Passed, pair, step
from evolve.statistics.partial_progress import further, reaches
from memory.errors import BadInput
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Status, Task, Trajectory, Trust, Verdict
from skills.record import Skill


class Rules(Frozen):
    """The settings of a decision."""

    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Chance that the lower bound lies above the true utility."""
    trust: Trust = Trust.SELF_JUDGED
    """Least trust of a text that is not divided where chance decides (`evolve.gates.ablation`)."""


class Options(Section):
    """How marginal utility is measured."""

    rounds: int = Field(default=4, ge=1)
    """How often each task is run with the change, and as often without it."""
    error: float = Field(default=Rules().alpha, gt=0, lt=1)
    """Chance that it accepts what does not help."""


class UtilityTrial(Frozen):
    """What was observed: round k of both groups had the same seed."""

    cohort: tuple[str, ...]
    without: tuple[dict[str, bool | None], ...]
    with_change: tuple[dict[str, bool | None], ...]
    reach: tuple[dict[str, tuple[float, float]], ...] = ()
    """Of skills: how far each task came in both runs of a round."""


def decide(trial: UtilityTrial, rules: Rules | None = None) -> Decision:
    """Accept iff the lower bound of the utility is above 0, and with skills no fewer tasks pass.

    Tasks count as independent draws from the tasks to come; each is worth the mean of its rounds, in [-1, 1]. A run
    that is missing failed; a pair whose run without the change is missing counts 0. It takes 7 tasks at least.
    Raises `BadInput` for an empty cohort, or groups that do not match.
    """
    rules = rules or Rules()
    rounds = len(trial.without)
    if not rounds or rounds != len(trial.with_change):
        raise BadInput(f"got {rounds} rounds without and {len(trial.with_change)} with the change; run as many of both")
    pairs = list(zip(trial.without, trial.with_change, strict=True))
    flips = [pair(trial.cohort, *each) for each in pairs]
    worth = _worth(trial, pairs)
    mean, lower = sum(worth.values()) / len(worth), mean_bound(tuple(worth.values()), rules.alpha)
    fewer = sum(len(each.lost) - len(each.gained) for each in flips) if trial.reach else 0
    accepted = lower > 0 and fewer <= 0
    reason = f"worth {mean:+.3f} a task over {len(worth)} tasks, lower bound {lower:+.3f}"
    return Decision(
        accepted=accepted,
        reason=f"{reason}; {fewer} fewer runs pass" if fewer > 0 else reason,
        status=Status.ACTIVE if accepted else Status.REJECTED,
        evidence={
            "trial": trial.model_dump(mode="json"),
            "rules": rules.model_dump(mode="json"),
            "statistics": {
                "mean": mean,
                "lower": lower,
                "tasks": worth,
                "coverage": sum(f.base_coverage + f.candidate_coverage for f in flips) / (2 * rounds),
            },
        },
    )


def _worth(trial: UtilityTrial, rounds: Sequence[tuple[Passed, Passed]]) -> dict[str, float]:
    """Return task -> mean over the rounds of what the change is worth there, in [-1, 1]."""
    if not trial.reach:
        return {task: sum(step(b.get(task), c.get(task)) for b, c in rounds) / len(rounds) for task in trial.cohort}
    signs = dict.fromkeys(trial.cohort, 0)
    for arms, reached in zip(rounds, trial.reach, strict=True):
        for tasks, sign in zip(further(trial.cohort, *arms, reached), (1, -1), strict=True):
            signs |= {task: signs[task] + sign for task in tasks}
    return {task: sign / len(rounds) for task, sign in signs.items()}


def replay(evidence: Mapping[str, Any]) -> Decision:
    """Decide again from what a decision recorded."""
    return decide(UtilityTrial.model_validate(evidence["trial"]), Rules.model_validate(evidence["rules"]))


class Utility:
    """Runs its tasks `rounds` times with and without the ops, and decides about all texts of a batch, and all skills.

    Of what it accepts, what is not missed when it is left out stays out (`evolve.gates.ablation`).
    """

    name = "utility"

    def __init__(
        self,
        evaluate: Evaluate,
        tasks: Sequence[Task],
        seed: int,
        *,
        rounds: int = Options().rounds,
        rules: Rules | None = None,
    ) -> None:
        self.tasks, self._rounds, self._rules = tuple(tasks), rounds, rules or Rules()
        self._evaluate, self._seed = evaluate, seed

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return the verdict on the changes among the ops; without any, nothing is run and no look is spent.

        Those wait whose runs cannot be afforded.
        """
        rounds, ablated = list[Round](), list[Round]()
        waiting: dict[str, str] = {}
        ablation = Ablation(self._evaluate, view, trajectories, floor=self._rules.trust)
        for changed in apart(changes(ops), Skill.kind):
            ids = tuple(op.op_id for op in changed)
            seed = seed_for(self._seed, self.name, *drawn_by(changed))
            try:
                decision = await self._measure(changed, seed)
            except OutOfCalls as short:
                waiting |= dict.fromkeys(ids, str(short))
                continue
            rounds.append(Round(ids, decision))
            if decision.accepted:
                found = await ablation.judge((), changed, self._seen(decision), seed)
                ablated, waiting = [*ablated, *found.rounds], waiting | found.waiting
        return verdict_of(self.name, ops, rounds, waiting, ablated)

    def _seen(self, decision: Decision) -> Seen:
        worth: Mapping[str, float] = decision.evidence["statistics"]["tasks"]
        ahead, behind = (tuple(task for task, each in worth.items() if sign * each > 0) for sign in (1, -1))
        return Seen(self.tasks, ahead, behind)

    async def _measure(self, changed: Sequence[DeltaOp], seed: int) -> Decision:
        seeds = [seed_for(seed, "round", at) for at in range(self._rounds)]
        without = [await self._evaluate(None, self.tasks, each) for each in seeds]
        with_change = [await self._evaluate(changed, self.tasks, each) for each in seeds]
        skills = all(op.kind == Skill.kind for op in changed)
        trial = UtilityTrial(
            cohort=tuple(task.id for task in self.tasks),
            without=tuple(map(dict, without)),
            with_change=tuple(map(dict, with_change)),
            reach=tuple(map(reaches, without, with_change)) if skills else (),
        )
        return decide(trial, self._rules)


def make(context: GateContext, options: Options) -> Utility:
    """Return the gate. Raises as `GateContext.bench_of` and `select_tasks`."""
    config, bench = context.config, context.bench_of(Utility.name)
    tasks = select_tasks(config, bench.evaluator.environment, bench.stream)
    rules = Rules(alpha=options.error, trust=config.gate.trust)
    return Utility(bench.evaluator, tasks, config.run.seed, rounds=options.rounds, rules=rules)


MEMBER = make
