"""Mode `frozen`: evaluate what is known now, with its controls. Nothing is learned."""

from __future__ import annotations

from dataclasses import replace

from evolve.app import load_tasks
from evolve.attempts import evaluate_attempts
from evolve.controls import sampled
from evolve.evaluate import EvalReport, evaluate_arms
from evolve.lookup import find_snapshot
from evolve.runs import Run
from memory.records import Snapshot


async def frozen(run: Run) -> tuple[EvalReport, ...]:
    """Evaluate every configured split at one snapshot: the configured one, or that of the start of the run.

    Several attempts at each task are reported as such, and are no evaluation of one arm.
    """
    config, deps = run.config, run.deps
    address = run.reached("start") or run.mark("start", _wanted(run))
    snapshot = deps.store.get_snapshot(address)
    reports: list[EvalReport] = []
    for split in config.run.eval_splits:
        tasks = load_tasks(config, deps.environment, split)[: config.run.tasks]
        stream = replace(deps.stream, tasks=tasks, control=sampled(tasks, run.share, config.run.seed))
        if config.run.attempts > 1:
            await evaluate_attempts(replace(deps, stream=stream), split, tasks, snapshot)
        else:
            reports += await evaluate_arms(replace(deps, stream=stream), split, tasks, snapshot)
    return tuple(reports)


def _wanted(run: Run) -> Snapshot:
    """Raises as `find_snapshot`."""
    store, named = run.deps.store, run.config.run.snapshot
    if named is None:
        return store.snapshot(run.deps.namespace)
    return store.get_snapshot(find_snapshot(store, run.deps.namespace, named))
