"""Further attempts at what a batch failed, until one succeeds: rejection sampling against the grader.

Each is a rollout with a seed of its own that is shown what the first one was, and is kept as data. The last ones are
told what the grader found of the one before (`evolve.episode.rationalization`). Where nobody grades and agreement
decides, all attempts are made at every task. Figures of the run count the first attempt alone; a success among the
others can become an exemplar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from evolve.episode.arms import ATTEMPT, MAIN, RATIONALIZED
from evolve.episode.injection import shown_again
from evolve.episode.journalled_replies import about
from evolve.episode.rationalization import gives_away, hint
from evolve.episode.rollout import Attempt, rollout
from evolve.loop.nodes.act import search_of
from evolve.loop.nodes.batch_episodes import batch_episodes
from evolve.loop.nodes.judge import judge_by_agreement, judge_episode, judged_success
from evolve.loop.nodes.recall import recalled
from evolve.loop.state import RunContext, State, batch_of
from evolve.parallel import all_of
from evolve.seeds import seed_for
from memory.records import StopReason, Trajectory


async def attempt(state: State, context: RunContext) -> dict[str, Any]:
    """Try each failed task of the batch again, `run.attempts` and `run.rationalizations` times in all at most.

    What is stored is not run again.
    """
    run = context.config.run
    if run.label_free and run.judge == "agreement":
        await all_of(_compared(first, batch_of(state), context) for first in batch_episodes(state, context))
    elif _most(context) > 1:
        failed = [first for first in batch_episodes(state, context) if not solved(first, context)]
        await all_of(_again(first, batch_of(state), context) for first in failed)
    return {}


def solved(trajectory: Trajectory, context: RunContext) -> bool:
    """Tell whether an episode is taken as a success: by its grade or, where none may be read, by the policy's judgement
    or, where nobody judges, by an action that worked and ended it.
    """
    if not context.config.run.label_free:
        return trajectory.success
    judged = judged_success(trajectory, context)
    if judged is not None:
        return judged
    worked = bool(trajectory.steps) and trajectory.steps[-1].error is None
    return worked and trajectory.stop is StopReason.DONE


def solution(first: Trajectory, context: RunContext) -> Trajectory | None:
    """Return the first attempt at a task of the batch that solved it; None where none did."""
    failed = first
    for each in (first, *_further(first, context)):
        if _good(each, failed, context):
            return each
        failed = failed if solved(each, context) else each
    return None


def _good(each: Trajectory, failed: Trajectory, context: RunContext) -> bool:
    """Tell whether an attempt solved its task, and not by a hint about the one that `failed` before it."""
    told = each.arm == RATIONALIZED and gives_away(failed, each)
    return solved(each, context) and not told


def _further(first: Trajectory, context: RunContext) -> Iterator[Trajectory]:
    for number in range(2, _most(context) + 1):
        found = context.store.trajectory(_id(first, number, context))
        if found is not None and not found.erased:
            yield found


def _most(context: RunContext) -> int:
    return context.config.run.attempts + context.config.run.rationalizations


async def _compared(first: Trajectory, batch: int, context: RunContext) -> None:
    async def one(number: int) -> Trajectory:
        stored = context.store.trajectory(_id(first, number, context))
        return stored or await _run(first, number, "", batch, context)

    further = await all_of(one(number) for number in range(2, context.config.run.attempts + 1))
    judge_by_agreement([first, *further], context)


async def _again(first: Trajectory, batch: int, context: RunContext) -> None:
    run, failed = context.config.run, first
    for number in range(2, _most(context) + 1):
        told = hint(failed) if number > run.attempts else ""
        if number > run.attempts and not told:
            return
        trajectory = context.store.trajectory(_id(first, number, context))
        trajectory = trajectory or await _run(first, number, told, batch, context)
        if run.label_free and run.judge == "policy":
            await judge_episode(trajectory, context)
        if _good(trajectory, failed, context):
            return
        failed = failed if solved(trajectory, context) else trajectory


async def _run(first: Trajectory, number: int, told: str, batch: int, context: RunContext) -> Trajectory:
    task = first.task
    shown = shown_again(context.store, recalled(batch, task.id, context))
    plan = Attempt(
        id=_id(first, number, context),
        task=task,
        seed=seed_for(context.stream.episode_seed(task.id, MAIN), ATTEMPT, number),
        core=shown.core,
        recalled=shown.recalled,
        injected=shown.injected,
        skills=shown.skills,
        exemplars=shown.exemplars,
        run_id=context.stream.run_id,
        arm=RATIONALIZED if told else ATTEMPT,
        guidance=told,
        search=search_of(batch, task, context),
    )
    acting = replace(context.acting, temperature=context.config.run.attempt_temperature)
    async with context.slots:
        with about(task.id):
            trajectory = await rollout(context.environment, context.policy, plan, acting)
    context.store.add_trajectory(trajectory)
    context.tally.add(trajectory)
    context.observers.notify(context.tally.event(trajectory))
    return trajectory


def _id(first: Trajectory, number: int, context: RunContext) -> str:
    return context.stream.episode_id(first.task.id, f"{ATTEMPT}-{number}")
