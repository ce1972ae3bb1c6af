"""Claim loop_1: the loop learns. Unseen office deployments, online tasks, then frozen evaluation on held-out tasks.

Arms: no memory (cold), the oracle playbook, another deployment's oracle, the oracle reworded, learned by pocket's own
reflector and curator, learned by the `rules` reflector, learned without labels; an A/A pair at temperature 0.7, and the
control family in which nothing can be learned. What an empty memory would meet stands beside without a target.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

from benchmarks.claim import Row, Target, at_least, begin
from benchmarks.office_arms import CONTROL, Bench, Cost, Tally, folder, followed, office, steps, tokens
from benchmarks.office_floor import scripted_rates
from evolve.environments.office.house_rules import Feedback, draw
from evolve.environments.office.wording import oracle
from policies.local import LocalPolicy

DEPLOYMENTS = range(10)
QUICK = range(1)
T = TypeVar("T")
OTHER = 500
"""How far away the deployment is whose oracle playbook serves as the wrong one."""
LESS = Target("< 0", lambda measured: measured < 0)


def alone(measure: Callable[[Bench], T], quick: bool, deployment: int) -> T:
    """Return what `measure` finds in one deployment, in this process on one core."""
    size: dict[str, Any] = {"train_tasks": 24, "test_tasks": 12} if quick else {}
    policy = LocalPolicy.pocket(threads=1)
    try:
        return measure(Bench(policy, deployment, **size))
    finally:
        asyncio.run(policy.aclose())


def measure(bench: Bench) -> dict[str, Tally]:
    """Return every arm of one deployment."""
    arms: dict[str, Tally] = {}
    with folder() as root:
        arms["cold"] = bench.evaluate(root / "cold", memory=False)
        right = bench.with_rules(root / "oracle", bench.office.oracle)
        arms["oracle"] = bench.evaluate(right)
        arms["other"] = bench.evaluate(bench.with_rules(root / "other", oracle(draw(bench.deployment + OTHER))))
        arms["reworded"] = bench.evaluate(bench.with_rules(root / "reworded", bench.reworded()))
        arms["aa_1"] = bench.evaluate(right, temperature=0.7, seed=1)
        arms["aa_2"] = bench.evaluate(right, temperature=0.7, seed=2)
        learned = root / "learned"
        bench.learn(learned)
        arms["learned"] = bench.evaluate(learned)
        arms["control_cold"] = bench.evaluate(root / "cold", memory=False, splits=CONTROL)
        arms["control_learned"] = bench.evaluate(learned, splits=CONTROL)
        arms |= _other_learners(bench, root)
    return arms


def _other_learners(bench: Bench, root: Path) -> dict[str, Tally]:
    bench.learn(root / "rules", reflector="rules", curator="direct")
    bench.learn(root / "label_free", label_free=True)
    return {name: bench.evaluate(root / name) for name in ("rules", "label_free")}


def closed(arms: dict[str, Tally], name: str = "learned") -> float:
    """Return the share of the gap between cold and oracle that an arm closes."""
    return (arms[name].rate - arms["cold"].rate) / max(arms["oracle"].rate - arms["cold"].rate, 1e-9)


def spread(values: Sequence[float], looks: int = 1) -> tuple[float, float] | None:
    """Return the 95 % t interval of a mean over deployments; None where they do not differ.

    Of several looks at a growing sample each has its share of the error (Bonferroni): 97.5 % at two.
    """
    from scipy import stats

    if len(set(values)) < 2:
        return None
    low, high = stats.t.interval(1 - 0.05 / looks, len(values) - 1, loc=mean(values), scale=stats.sem(values))
    return float(low), float(high)


@dataclass(frozen=True)
class Results:
    """Every arm of every deployment, and the figures made of them: rates in points of 100, means over deployments."""

    arms: dict[int, dict[str, Tally]]

    def row(self, text: str, of: Callable[[dict[str, Tally]], float], target: Target | None = None) -> Row:
        """Return the mean over deployments of a figure of their arms."""
        values = [of(arms) for arms in self.arms.values()]
        return Row(text, mean(values), target, n=len(values), ci=spread(values), seed=0)

    def points(self, text: str, name: str, minus: str = "", target: Target | None = None) -> Row:
        """Return the rate of an arm over all its tasks, less that of another arm."""

        def difference(arms: dict[str, Tally]) -> float:
            return 100 * (arms[name].rate - (arms[minus].rate if minus else 0.0))

        return self.row(text, difference, target)

    def normal(self, name: str, target: Target | None = None) -> Row:
        """Return the rate of an arm on test_normal."""
        values = [100 * arms[name].split_rate(office(d), "test_normal") for d, arms in self.arms.items()]
        return Row(f"{name} on test_normal, %", mean(values), target, n=len(values), ci=spread(values), seed=0)

    def closed(self, name: str, target: Target | None = None) -> Row:
        """Return the share of the gap that an arm closes."""
        return self.row(f"gap closed: {name}, % (mean)", lambda arms: 100 * closed(arms, name), target)

    def less(self, name: str, cost: Cost, learner: str = "learned") -> list[Row]:
        """Return how much less a solved task takes after learning: all that was spent, and where both solve it."""

        def both(arms: dict[str, Tally]) -> float:
            cold, learned = arms["cold"], arms[learner]
            solved = {task for task, passed in cold.passed.items() if passed and learned.passed[task]}
            return learned.spent_on(solved, cost) - cold.spent_on(solved, cost) if solved else 0.0

        def spent(arms: dict[str, Tally]) -> float:
            return arms[learner].spent(cost) - arms["cold"].spent(cost)

        return [
            self.row(f"{name} spent in all per solved task: {learner} minus cold", spent, LESS),
            self.row(f"{name} on tasks solved by both: {learner} minus cold", both, LESS),
        ]

    def by_class(self, feedback: Feedback, learner: str = "learned") -> Row:
        """Return the gap closed in following one class of rule, over all deployments."""
        rates = {
            name: mean(followed(office(d), arms[name].trajectories)[feedback] for d, arms in self.arms.items())
            for name in ("cold", learner, "oracle")
        }
        gap = 100 * (rates[learner] - rates["cold"]) / max(rates["oracle"] - rates["cold"], 1e-9)
        target = at_least(50) if feedback == "silent" else None
        return Row(f"gap closed in following {feedback} rules: {learner}, %", gap, target, n=len(self.arms), seed=0)


def rows(results: Results) -> list[Row]:
    """Return the figures of the claim."""
    worst = min(100 * closed(arms) for arms in results.arms.values())
    return [
        results.points("oracle playbook minus cold, points", "oracle", "cold", at_least(40)),
        results.normal("oracle", at_least(80)),
        results.closed("learned", at_least(80)),
        Row("gap closed: learned, % (worst deployment)", worst, at_least(60), n=len(results.arms), seed=0),
        results.by_class("silent"),
        results.points("another deployment's oracle minus cold, points", "other", "cold"),
        results.points("oracle minus reworded oracle, points", "oracle", "reworded"),
        results.points("control family: learned minus cold, points", "control_learned", "control_cold"),
        results.row("SGC test_normal: learned minus cold, points", _sgc_gain, at_least(0.1)),
        *results.less("steps", steps),
        *results.less("generated tokens", tokens),
        results.row("A/A flips at temperature 0.7, % of tasks", _flips),
        *[results.points(f"{name}, % of all test tasks", name) for name in ("cold", "learned", "oracle")],
        *[results.normal(name) for name in ("cold", "learned")],
        *[results.closed(name) for name in ("rules", "label_free")],
        *[results.by_class(feedback) for feedback in ("told", "code")],
    ]


def _flips(arms: dict[str, Tally]) -> float:
    first, second = arms["aa_1"].passed, arms["aa_2"].passed
    return 100 * sum(first[task] != second[task] for task in first) / len(first)


def _sgc_gain(arms: dict[str, Tally]) -> float:
    return 100 * (arms["learned"].sgc["test_normal"] - arms["cold"].sgc["test_normal"])


def main() -> None:
    """Measure and record."""
    claim = begin("loop_1_learns", __doc__)
    deployments = QUICK if claim.quick else DEPLOYMENTS
    results: dict[int, dict[str, Tally]] = {}
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for deployment, arms in zip(
            deployments, pool.map(partial(alone, measure, claim.quick), deployments), strict=True
        ):
            results[deployment] = arms
            shown = "  ".join(f"{name} {100 * tally.rate:.0f}" for name, tally in arms.items())
            print(f"deployment {deployment}: {shown}", flush=True)
    claim.record([*rows(Results(results)), *scripted_rates(deployments)])


if __name__ == "__main__":
    main()
