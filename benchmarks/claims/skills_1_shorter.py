"""Claim skills_1: skills make the next task shorter. Ten unseen offices, the playbook on in both arms, held-out tasks.

Same weights, same prompt profile, same stream of 120 tasks, default gates: one arm works with skills, one without. A
step is one action and its observation. Each figure is a paired difference of an office, in % of the arm without skills
where it is a cost. Beside them: no memory, an A/A pair at temperature 0.7 of the arm without skills, and the arm with
skills when its library is taken away. `--quick`: the office's scripted worker, two offices, 60 tasks, no model.

SGC on test_challenge missed its +5 where it was last measured in full (commit adf39b3: -0.6 [-7.3, 6.1]). The interval
is wide, and in one of the ten offices no skill was ever judged: texts waited for the gates' calls to the end of the
stream, and skills with them (docs/LOG.md).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from statistics import mean
from typing import Any

from benchmarks.claim import Row, Target, at_least, begin
from benchmarks.claims.loop_1_learns import spread
from benchmarks.office_arms import SPLITS, Bench, Cost, Tally, folder, office, steps, tokens
from evolve.environments.office.environment import Office as Environment
from evolve.environments.office.environment import OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.episode.skill_runtime.figures import SkillFigures
from evolve.gates.stack import DEFAULT
from policies.protocols import Policy

DEPLOYMENTS, QUICK = range(10, 20), range(2)
"""0 to 9 were looked into, to see why an earlier measurement missed: they show nothing any more."""
TASKS, FEW = 120, 60
SATURATED = 0.95
"""Share of tasks solved without skills from which no gain in SGC is asked for: there the figure shows only harm."""
FEWER_TOKENS, FEWER_STEPS, MORE_SGC = 40, 25, 5


@dataclass(frozen=True)
class Office:
    """Every arm of one deployment."""

    arms: dict[str, Tally]
    figures: SkillFigures | None
    skills: int
    """Skills in use at the end of the stream."""

    def less(self, cost: Cost, arm: str = "on", than: str = "off") -> float:
        """Return by how many % a solved task costs less in an arm than in another."""
        before = self.arms[than].spent(cost)
        return 100 * (before - self.arms[arm].spent(cost)) / before


def policy_for(deployment: int, scripted: bool) -> Policy:
    """Return who acts, reflects and curates."""
    if scripted:
        return make_worker(office(deployment))
    from policies.local import LocalPolicy

    return LocalPolicy.pocket(threads=1)


def measure(scripted: bool, deployment: int) -> Office:
    """Return the arms of one deployment, in this process on one core."""
    policy = policy_for(deployment, scripted)
    tasks = FEW if scripted else TASKS
    world = Environment(OfficeConfig(deployment=deployment, train_tasks=tasks))
    off = Bench(policy, deployment, concurrency=4 if scripted else 64, train_tasks=tasks)
    on = replace(off, skills=True)
    writers: dict[str, Any] = {"reflector": "rules", "curator": "direct"} if scripted else {}
    try:
        with folder() as root:
            off.learn(root / "off", gates=(DEFAULT,), world=world, **writers)
            on.learn(root / "on", gates=(DEFAULT,), world=world, **writers)
            arms = {
                "cold": off.evaluate(root / "cold", memory=False),
                "off": off.evaluate(root / "off"),
                "on": on.evaluate(root / "on"),
                "library taken away": off.evaluate(root / "on"),
                "A/A 1": off.evaluate(root / "off", temperature=0.7, seed=1),
                "A/A 2": off.evaluate(root / "off", temperature=0.7, seed=2),
            }
            return Office(arms, on.skill_figures(root / "on", arms["on"]), on.skills_in_use(root / "on"))
    finally:
        asyncio.run(policy.aclose())


def rows(found: dict[int, Office]) -> list[Row]:
    """Return the figures: means over deployments, each with its 95 % interval."""

    def row(text: str, of: Callable[[Office], float], target: Target | None = None) -> Row:
        values = [of(each) for each in found.values()]
        return Row(text, mean(values), target, n=len(values), ci=spread(values), seed=0)

    def gain(split: str) -> Callable[[Office], float]:
        return lambda each: 100 * (each.arms["on"].sgc[split] - each.arms["off"].sgc[split])

    return [
        row("generated tokens per solved task: % fewer with skills", lambda o: o.less(tokens), at_least(FEWER_TOKENS)),
        row("steps per solved task: % fewer with skills", lambda o: o.less(steps), at_least(FEWER_STEPS)),
        *[row(f"SGC {split}: with skills minus without, points", gain(split), asked(found, split)) for split in SPLITS],
        row("A/A: % fewer tokens per solved task", lambda o: o.less(tokens, "A/A 1", "A/A 2")),
        row("library taken away: % fewer tokens per solved task", lambda o: o.less(tokens, "library taken away")),
        *[row(f"{name}, % of tasks solved", lambda o, name=name: 100 * o.arms[name].rate) for name in names(found)],
        row("tasks with skills that called one, %", lambda o: 100 * o.figures.citation if o.figures else 0.0),
        row("of these solved, %", lambda o: 100 * o.figures.success if o.figures else 0.0),
        row("skills in use after the stream", lambda o: o.skills),
        *families(found),
    ]


def asked(found: dict[int, Office], split: str) -> Target | None:
    """Return what SGC must gain on a split: nothing where the tasks are solved without skills."""
    rate = mean(each.arms["off"].split_rate(office(d), split) for d, each in found.items())
    return None if rate >= SATURATED else at_least(MORE_SGC)


def names(found: dict[int, Office]) -> Sequence[str]:
    """Return the arms' names."""
    return tuple(next(iter(found.values())).arms)


def families(found: dict[int, Office]) -> list[Row]:
    """Return for each family of tasks how many % fewer tokens an episode took with skills, over all offices."""
    written: dict[str, dict[str, list[float]]] = {}
    for each in found.values():
        for arm in ("off", "on"):
            for trajectory in each.arms[arm].trajectories:
                family = str(trajectory.task.metadata["family"])
                written.setdefault(family, {"off": [], "on": []})[arm].append(tokens(trajectory))
    return [
        Row(f"{family}: % fewer tokens", 100 * (1 - mean(by["on"]) / mean(by["off"])), n=len(by["on"]), seed=0)
        for family, by in sorted(written.items())
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("skills_1_shorter", __doc__)
    deployments = QUICK if claim.quick else DEPLOYMENTS
    found: dict[int, Office] = {}
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for at, each in zip(deployments, pool.map(partial(measure, claim.quick), deployments), strict=True):
            found[at] = each
            shown = "  ".join(f"{name} {100 * tally.rate:.0f}" for name, tally in each.arms.items())
            print(
                f"deployment {at}: {shown}  tokens -{each.less(tokens):.0f} %  steps -{each.less(steps):.0f} %",
                flush=True,
            )
    made = rows(found)
    claim.conclude(made)


if __name__ == "__main__":
    main()
