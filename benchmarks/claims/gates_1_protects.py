"""Claim gates_1: gates keep what helps and stop what harms. Unseen office deployments, 300 train tasks, frozen tests.

Gated is the stack `default`, ungated its first gate alone (`static`), on the same tasks and seeds. The scripted office
worker acts and the `rules` reflector writes: no model is asked, so these figures are about the gates, not about the
lessons of a model. Three streams: clean; 15 % of the grades wrong, those that gates read included; a reflector that
lies in every third batch. There it states a wrong value in the normal wording for every rule that a task falls under,
and elsewhere speaks of failures alone: more than a third of all lessons are false. Calls of the gates are counted apart
and capped at twice the stream's, as where calls cost money: there is no advance. The drift row is another script's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

from benchmarks.claim import Row, Target, at_least, at_most, begin
from benchmarks.learning_worlds import BATCH, TASKS, LongOffice, LyingReflector, NoisyOffice
from benchmarks.office_arms import folder
from evolve.config.model import Config
from evolve.environments.office.environment import OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.gates.account import account
from evolve.gates.decision_ledger import replay
from evolve.gates.stack import DEFAULT
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, run

DEPLOYMENTS = range(10)
QUICK = range(1)
STREAMS = ("clean", "noisy", "lying")
ARMS = {"gated": DEFAULT, "ungated": "static"}
TEST = ("test_normal", "test_challenge")


@dataclass(frozen=True)
class Life:
    """One arm of one stream in one deployment."""

    solved: float
    """Share of all test tasks solved afterwards, frozen, graded rightly."""
    stream: float
    calls: int
    gate_calls: int
    replayed: int
    """Decisions of the gates that were made again from the journal; there are none without gates that run tasks."""
    differ: int
    """Of these, verdicts that come out differently."""


def live(deployment: int, stream: str, arm: str, tasks: int) -> Life:
    """Work through a stream, then evaluate what was learned."""
    right = LongOffice(OfficeConfig(deployment=deployment))
    office = NoisyOffice(right.config) if stream == "noisy" else right
    with folder() as root:
        config = _config(root, arm, tasks)
        reflector = LyingReflector(right) if stream == "lying" else None
        parts = Parts(policy=make_worker(office), environment=office, reflector=reflector)
        result = run(config, parts=parts)
        with open_store(config, read_only=True) as store:
            spent, again = account(store, result.run_id), replay(store, result.run_id)
        assert result.metrics is not None
        return Life(
            solved=examined(config, right),
            stream=result.metrics.tgc,
            calls=result.metrics.usage.calls,
            gate_calls=spent.usage.calls,
            replayed=again.decisions,
            differ=len(again.differences),
        )


def examined(config: Config, office: LongOffice, *, memory: bool = True) -> float:
    """Return the share of the test tasks that are solved with what the workspace knows, or without memory."""
    section = config.run.model_copy(update={"mode": "frozen", "eval_splits": TEST, "tasks": None})
    playbook = config.playbook.model_copy(update={"enabled": memory})
    frozen = config.model_copy(update={"run": section, "playbook": playbook})
    result = run(frozen, parts=Parts(policy=make_worker(office), environment=office))
    marks = [mark is True for report in result.evaluations for mark in report.passed.values()]
    return sum(marks) / len(marks)


def cold(deployment: int) -> float:
    """Return the share of the test tasks that are solved without memory."""
    with folder() as root:
        return examined(_config(root, "ungated", 1), LongOffice(OfficeConfig(deployment=deployment)), memory=False)


def _config(root: Path, arm: str, tasks: int) -> Config:
    return Config.model_validate(
        {
            "root": root,
            "run": {"tasks": tasks, "batch_size": BATCH},
            "environment": {"name": "office", "max_steps": 16},
            "memory": {"index": "exact", "recall_k": 40},
            "playbook": {"reflector": "rules", "curator": "direct"},
            "controls": {"no_memory": 0},
            "gate": {"names": [ARMS[arm]], "calls_advance": 0},
        }
    )


def spread(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the two-sided 95 % t interval of a mean over deployments; None where they do not differ."""
    from scipy import stats

    if len(set(values)) < 2:
        return None
    low, high = stats.t.interval(0.95, len(values) - 1, loc=mean(values), scale=stats.sem(values))
    return float(low), float(high)


Lives = dict[tuple[int, str, str], Life]


def rows(lives: Lives, without: dict[int, float]) -> list[Row]:
    """Return the figures of the claim. Rates in %, differences in points, means over deployments."""
    deployments = sorted(without)

    def figure(text: str, of: Callable[[int], float], target: Target | None = None, *, bound: bool = False) -> Row:
        values = [of(deployment) for deployment in deployments]
        ci = spread(values)
        low = ci[0] if ci else mean(values)
        return Row(text, low if bound else mean(values), target, n=len(values), ci=ci, seed=0)

    def gap(stream: str) -> Callable[[int], float]:
        return lambda d: 100 * (lives[d, stream, "gated"].solved - lives[d, stream, "ungated"].solved)

    def fell(stream: str) -> Callable[[int], float]:
        return lambda d: 100 * (lives[d, "clean", "ungated"].solved - lives[d, stream, "ungated"].solved)

    def rate(stream: str, arm: str) -> Callable[[int], float]:
        return lambda d: 100 * lives[d, stream, arm].solved

    def predicted(stream: str, arm: str) -> Callable[[int], float]:
        return lambda d: 100 * lives[d, stream, arm].stream

    found = [figure("clean: gated minus ungated, points, lower 95 % bound", gap("clean"), at_least(-3), bound=True)]
    for stream in ("noisy", "lying"):
        found.append(figure(f"{stream}: gated minus ungated, points", gap(stream), at_least(15)))
        found.append(figure(f"{stream}: ungated below ungated on the clean stream, points", fell(stream), at_least(15)))
    found.append(figure("without memory, % of all test tasks", lambda d: 100 * without[d]))
    found += [figure(f"{s}, {arm}: % of all test tasks", rate(s, arm)) for s in STREAMS for arm in ARMS]
    found += [figure(f"{s}, {arm}: % of the stream itself", predicted(s, arm)) for s in STREAMS for arm in ARMS]
    for stream in STREAMS:
        ratios = [each.gate_calls / each.calls for (_, s, arm), each in lives.items() if (s, arm) == (stream, "gated")]
        found.append(Row(f"{stream}: calls of gates / of the stream, worst", max(ratios), at_most(2), n=len(ratios)))
    again, differ = (sum(getattr(each, name) for each in lives.values()) for name in ("replayed", "differ"))
    return [*found, Row("gate decisions that replay differently", differ if again else None, at_most(0), n=again)]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("gates_1_protects", __doc__)
    deployments, tasks = (QUICK, 120) if claim.quick else (DEPLOYMENTS, TASKS)
    plan = list(product(deployments, STREAMS, ARMS))
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        without = dict(zip(deployments, pool.map(cold, deployments), strict=True))
        lives: Lives = {}
        for key, life in zip(plan, pool.map(partial(_planned, tasks), plan), strict=True):
            lives[key] = life
            print(*key, life, flush=True)
    found = rows(lives, without)
    claim.conclude(found)


def _planned(tasks: int, plan: tuple[int, str, str]) -> Life:
    return live(*plan, tasks)


if __name__ == "__main__":
    main()
