"""Mode `frozen`: evaluate what is known now, with its controls. Nothing is learned."""

from __future__ import annotations

from dataclasses import replace

from evolve.app import load_tasks
from evolve.controls import sampled
from evolve.evaluate import EvalReport, evaluate_arms
from evolve.runs import Run


async def frozen(run: Run) -> tuple[EvalReport, ...]:
    """Evaluate every configured split at one snapshot, taken when the run started."""
    config, deps = run.config, run.deps
    address = run.reached("start") or run.mark("start", deps.store.snapshot(deps.namespace))
    snapshot = deps.store.get_snapshot(address)
    reports: list[EvalReport] = []
    for split in config.run.eval_splits:
        tasks = load_tasks(config, deps.environment, split)[: config.run.tasks]
        stream = replace(deps.stream, tasks=tasks, control=sampled(tasks, run.share, config.run.seed))
        reports += await evaluate_arms(replace(deps, stream=stream), split, tasks, snapshot)
    return tuple(reports)
