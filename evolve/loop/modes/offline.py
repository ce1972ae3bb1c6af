"""Mode `offline`: epochs over train, each validated on dev; the best snapshot is the one that stays.

The knowledge before the first epoch is validated too, so a run that only does harm ends where it began.
"""

from __future__ import annotations

from dataclasses import replace

from evolve.environments.task_files import load_tasks
from evolve.loop.evaluate import EvalReport, Exam, evaluate
from evolve.loop.modes.online import shuffled
from evolve.loop.nodes.waiting import take_up
from evolve.loop.runs import Run
from evolve.progress import Notice
from memory.records import Task

ACTOR = "offline"


async def offline(run: Run) -> tuple[EvalReport, ...]:
    """Learn epoch by epoch and return the validation reports, the one before learning first."""
    from evolve.loop.graph import run_pass

    config, context = run.config, run.context
    dev = load_tasks(config, context.environment, config.run.dev_split)
    if not run.reached("epoch 0"):
        take_up(context)
    reports = [await _validate(run, dev, 0)]
    for epoch in range(1, config.run.epochs + 1):
        tasks = shuffled(context.stream.tasks, config.run.seed, epoch)
        stream = replace(context.stream, name=f"e{epoch}", tasks=tasks)
        if not run.reached(f"epoch {epoch}"):
            await run_pass(replace(context, stream=stream), run.checkpoints)
        reports.append(await _validate(run, dev, epoch))
    _keep_best(run, reports)
    return tuple(reports)


async def _validate(run: Run, dev: tuple[Task, ...], epoch: int) -> EvalReport:
    """Evaluate dev at the snapshot that ended an epoch; a resumed run finds that snapshot again."""
    context, mark = run.context, f"epoch {epoch}"
    address = run.reached(mark) or run.mark(mark, context.store.snapshot(context.namespace))
    return await evaluate(context, Exam(run.config.run.dev_split, dev, context.store.get_snapshot(address), label=mark))


def _keep_best(run: Run, reports: list[EvalReport]) -> None:
    """Go back to the best epoch's snapshot; among equals the latest stays."""
    best = max(range(len(reports)), key=lambda at: (reports[at].metrics.tgc, at))
    if best == len(reports) - 1:
        return
    context, snapshot_id = run.context, reports[best].snapshot_id
    assert snapshot_id is not None  # validation always has memory on
    context.store.rollback(context.namespace, snapshot_id, actor=ACTOR)
    text = f"epoch {best} was best on {run.config.run.dev_split} ({reports[best].metrics.tgc:.1%}); its knowledge stays"
    context.observers.notify(Notice(run_id=context.stream.run_id, text=text))
