"""Mode `online`: one pass over a stream of tasks; each batch is predicted first and learned from afterwards."""

from __future__ import annotations

from dataclasses import replace

from evolve.loop.evaluate import EvalReport
from evolve.loop.nodes.waiting import take_up
from evolve.loop.runs import Run
from evolve.seeds import seed_for
from memory.records import Task


async def online(run: Run) -> tuple[EvalReport, ...]:
    """Work through the stream. Nothing is evaluated beside it: the stream itself is the measurement."""
    from evolve.loop.graph import run_pass

    context, tasks = run.context, run.context.stream.tasks
    if not run.reached("start"):
        take_up(context)
        run.mark("start", context.store.snapshot(context.namespace))  # what `evolve playbook rollback` goes back to
    if run.config.run.shuffle:
        tasks = shuffled(tasks, run.config.run.seed, 0)
    await run_pass(replace(context, stream=replace(context.stream, tasks=tasks)), run.checkpoints)
    return ()


def shuffled(tasks: tuple[Task, ...], seed: int, epoch: int) -> tuple[Task, ...]:
    """Return the tasks in an order drawn from (seed, epoch)."""
    return tuple(sorted(tasks, key=lambda task: place(task.id, seed, epoch)))


def place(task_id: str, seed: int, epoch: int) -> tuple[int, str]:
    """Return what the drawn order sorts a task by."""
    return seed_for(seed, "order", epoch, task_id), task_id
