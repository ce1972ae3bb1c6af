"""Mode `frozen`: evaluate what is known now, with its controls. Nothing is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evolve.environments.task_files import load_tasks
from evolve.lookup import find_snapshot
from evolve.loop.attempts import evaluate_attempts
from evolve.loop.controls import sampled
from evolve.loop.evaluate import EvalReport, evaluate_arms
from evolve.loop.runs import Run
from memory.records import Snapshot


def evaluation(
    splits: Sequence[str] = (), *, memory: bool = True, attempts: int | None = None, limit: int | None = None
) -> dict[str, Any]:
    """Return what makes a run an evaluation of these splits (none: the configured ones), as `section.key` -> value.

    Without `memory` nothing that was learned is shown. `limit` is the most tasks of a split.
    """
    changes: dict[str, Any] = {"run.mode": "frozen", "run.tasks": limit}
    changes |= {"run.eval_splits": list(splits)} if splits else {}
    changes |= {"run.attempts": 1 if attempts is None else attempts}  # the file's is that of runs that learn
    return changes | ({} if memory else {"playbook.enabled": False})


async def frozen(run: Run) -> tuple[EvalReport, ...]:
    """Evaluate every configured split at one snapshot: the configured one, or that of the start of the run.

    Several attempts at each task are reported as such, and are no evaluation of one arm.
    """
    config, context = run.config, run.context
    address = run.reached("start") or run.mark("start", _wanted(run))
    snapshot = context.store.get_snapshot(address)
    reports: list[EvalReport] = []
    for split in config.run.eval_splits:
        tasks = load_tasks(config, context.environment, split)[: config.run.tasks]
        stream = replace(context.stream, tasks=tasks, control=sampled(tasks, run.share, config.run.seed))
        if config.run.attempts > 1:
            await evaluate_attempts(replace(context, stream=stream), split, tasks, snapshot)
        else:
            reports += await evaluate_arms(replace(context, stream=stream), split, tasks, snapshot)
    return tuple(reports)


def _wanted(run: Run) -> Snapshot:
    """Raises as `find_snapshot`."""
    store, named = run.context.store, run.config.run.snapshot
    if named is None:
        return store.snapshot(run.context.namespace)
    return store.get_snapshot(find_snapshot(store, run.context.namespace, named))
