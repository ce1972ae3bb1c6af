"""Claim skills_2: what helps is admitted, what harms is not, and idle skills do not distract.

Ten offices with their oracle playbook: gate `utility` judges each of 40 skills by itself, on 192 tasks that none was
written from. Then the office's stream of 300 tasks with default gates: new skills per task. Scripted worker, no model:
it has 14 intents to write skills for, so growth ends by itself, and these figures have no target. Last, pocket: what it
learned in 60 tasks, evaluated frozen on all test tasks, alone and beside 200 skills that nobody needs. `--quick`: one
office, 13 of its 40 candidates, 100 tasks, the scripted worker throughout.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.claim import Row, Target, at_least, at_most, begin, exactly
from benchmarks.claims.loop_1_learns import spread
from benchmarks.office_arms import Bench, folder, office
from benchmarks.skill_mix import Kind, WideOffice, add, candidates, useless
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.house_rules import seeded
from evolve.environments.office.worker import make_worker
from evolve.episode.rollout import RolloutConfig
from evolve.gates.evaluator import Evaluator
from evolve.gates.stack import DEFAULT
from evolve.gates.utility import Utility
from evolve.loop.assembly import open_store
from memory.records import Status
from policies.protocols import Policy

DEPLOYMENTS, QUICK = range(10), range(1)
TASKS, FEW = 300, 100
DISTRACTORS = 200


@dataclass(frozen=True)
class Life:
    """What one deployment came to."""

    of: Counter[Kind]
    """Candidates by kind."""
    admitted: Counter[Kind]
    growth: tuple[float, float, float]
    """New skills per task, by thirds of the stream."""
    alone: float
    """Share of test tasks solved with the skills that were learned."""
    distracted: float
    """The same beside `DISTRACTORS` others."""


def measure(quick: bool, deployment: int) -> Life:
    """Return the figures of one deployment, in this process on one core."""
    worker = make_worker(office(deployment))
    actor = worker if quick else _pocket()
    bench = Bench(actor, deployment, skills=True, test_tasks=24 if quick else None)
    try:
        with folder() as root:
            of, admitted = asyncio.run(_judged(root / "mix", deployment, 13 if quick else None))
            growth = _growth(root / "stream", deployment, FEW if quick else TASKS)
            alone, distracted = _distracted(bench, root / "learned", scripted=quick)
            return Life(of, admitted, growth, alone, distracted)
    finally:
        asyncio.run(actor.aclose())


async def _judged(root: Path, deployment: int, most: int | None) -> tuple[Counter[Kind], Counter[Kind]]:
    """Return how many candidates of each kind there are, and how many the gate admits."""
    world = WideOffice(OfficeConfig(deployment=deployment))
    bench = Bench(make_worker(world), deployment, skills=True)
    config = bench.config(bench.with_rules(root, world.oracle))
    of, admitted = Counter[Kind](), Counter[Kind]()
    with open_store(config, bench.policy.count_tokens) as store:
        acting = RolloutConfig(world="", max_steps=16, skills=True)
        evaluator = Evaluator(config, store, world, bench.policy, acting, "mix")
        gate = Utility(evaluator, world.tasks("dev"), seed=0, rounds=1)
        for each in candidates(world)[:most]:
            verdict = await gate.judge([each.op], store.view(config.memory.namespace), ())
            of[each.kind] += 1
            admitted[each.kind] += bool(verdict.accepted)
    return of, admitted


def _growth(root: Path, deployment: int, tasks: int) -> tuple[float, float, float]:
    """Return the new skills per task in each third of a stream, by the task that each was first written in."""
    world = Office(OfficeConfig(deployment=deployment, train_tasks=tasks))
    bench = Bench(make_worker(world), deployment, concurrency=4, train_tasks=tasks, skills=True)
    bench.learn(root, reflector="rules", curator="direct", gates=(DEFAULT,), world=world)
    at = {task.id: number for number, task in enumerate(world.tasks("train"))}
    with open_store(bench.config(root), bench.policy.count_tokens, read_only=True) as store:
        skills = [record for record in store.records("default") if record.kind == "skill"]
    third = tasks / 3
    found = Counter(min(2, int(at[record.provenance.task_ids[0]] / third)) for record in skills)
    return found[0] / third, found[1] / third, found[2] / third


def _distracted(bench: Bench, root: Path, *, scripted: bool) -> tuple[float, float]:
    """Return the share of test tasks solved after learning: as it is, and with the distractors beside."""
    writers: dict[str, Any] = {"reflector": "rules", "curator": "direct"} if scripted else {}
    bench.learn(root, gates=(DEFAULT,), **writers)
    alone = bench.evaluate(root).rate
    config = bench.config(root)
    ops = [add(source, status=Status.ACTIVE) for source in useless(seeded("idle", bench.deployment), DISTRACTORS)]
    with open_store(config, bench.policy.count_tokens) as store:
        commit = store.commit(config.memory.namespace, ops, actor="benchmark")
    if commit.refused:
        raise RuntimeError(f"a distractor was refused: {commit.refused[0].reason}")
    return alone, bench.evaluate(root).rate


def _pocket() -> Policy:
    from policies.local import LocalPolicy

    return LocalPolicy.pocket(threads=1)


def rows(found: list[Life]) -> list[Row]:
    """Return the figures of the claim: shares over all candidates, means over deployments."""

    def share(kind: Kind, target: Target | None = None) -> Row:
        admitted, of = sum(each.admitted[kind] for each in found), sum(each.of[kind] for each in found)
        return Row(f"{kind} skills admitted, %", 100 * admitted / of, target, n=of, seed=0)

    def row(text: str, of: Callable[[Life], float], target: Target | None = None) -> Row:
        values = [of(each) for each in found]
        return Row(text, mean(values), target, n=len(values), ci=spread(values), seed=0)

    return [
        share("harmful", exactly(0)),
        share("helpful", at_least(80)),
        share("neutral"),
        row("new skills per task, first third of the stream", lambda o: o.growth[0]),
        row("new skills per task, second third", lambda o: o.growth[1]),
        row("new skills per task, last third", lambda o: o.growth[2]),
        row("solved with learned skills, % of test tasks", lambda o: 100 * o.alone),
        row(f"points lost beside {DISTRACTORS} others", lambda o: 100 * (o.alone - o.distracted), at_most(2)),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("skills_2_utility", __doc__)
    deployments = QUICK if claim.quick else DEPLOYMENTS
    found: list[Life] = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for at, each in zip(deployments, pool.map(partial(measure, claim.quick), deployments), strict=True):
            found.append(each)
            print(f"deployment {at}: {each}", flush=True)
    made = rows(found)
    claim.conclude(made)


if __name__ == "__main__":
    main()
