"""Further attempts at what a batch failed, until one succeeds: rejection sampling against the grader.

Each is a rollout with a seed of its own that is shown what the first one was, and is kept as data. The agent makes them
or, with `policy.teacher.attempts`, its teacher. Where nobody grades and agreement decides, all attempts are made at
every task. Figures of the run count the first attempt alone; a success among the others can become an exemplar.

Where the configuration wants it, what no attempt solved is done once as the environment itself solves it
(`exemplars.gold`), since an agent that never succeeds has nothing to learn from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from evolve.config.model import Config
from evolve.episode.agreement import AGREEMENT
from evolve.episode.arms import ATTEMPT, GOLD, MAIN, TEACHER
from evolve.episode.journalled_replies import about
from evolve.episode.rollout import Attempt, rollout
from evolve.errors import ConfigError
from evolve.loop.batch import Batch
from evolve.loop.nodes.act import search_of
from evolve.loop.nodes.judge import judge_by_agreement, judge_episode, judged_success
from evolve.loop.nodes.recall import recalled
from evolve.loop.state import RunContext, State, batch_of
from evolve.parallel import all_of
from evolve.progress import Notice
from evolve.protocols import Action, Environment, HasGold
from evolve.seeds import seed_for
from evolve.usercode import ask_list
from memory.records import StopReason, Trajectory, Usage
from policies.protocols import Reply
from policies.roles import Policies
from policies.scripted import ScriptedPolicy


async def attempt(state: State, context: RunContext) -> dict[str, Any]:
    """Try each failed task of the batch again, `run.attempts` times in all at most. What is stored is not run again."""
    run, batch = context.config.run, context.batch(batch_of(state))
    if run.label_free and run.judge == AGREEMENT:
        await all_of(_compared(first, batch, context) for first in batch.episodes)
    elif run.attempts > 1:
        failed = [first for first in batch.episodes if not solved(first, context)]
        await all_of(_again(first, batch, context) for first in failed)
    if context.config.exemplars.gold:
        await all_of(_gold(first, context) for first in batch.episodes if solution(first, context) is None)
    return {}


def check(config: Config, environment: Environment, policies: Policies) -> None:
    """Raise `ConfigError` where the environment's own solutions are wanted and there are none, or none may be read, and
    where a teacher is to make attempts that could not be shown as the agent's own."""
    acting, teacher = policies.acting, policies.teacher
    shows = config.policy.teacher.attempts and config.run.mode != "frozen"
    if shows and teacher is acting:
        raise ConfigError(
            "[policy.teacher] attempts = true lets another model try what the agent failed, and here the agent is its "
            "own teacher: name one in [policy.teacher], or leave attempts out"
        )
    if shows and config.policy.teacher.plan_review:
        raise ConfigError(
            "[policy.teacher] plan_review makes the first reply a plan, and nobody reviews that of a teacher who makes "
            "attempts: leave plan_review or attempts out"
        )
    if shows and config.run.judge == AGREEMENT:
        raise ConfigError(
            "[policy.teacher] attempts are made at what the agent failed, and run.judge = 'agreement' compares the "
            "agent's own attempts at every task: drop one"
        )
    if shows and config.run.attempts < 2:
        raise ConfigError(
            "[policy.teacher] attempts = true lets the teacher try what the agent failed, and run.attempts = 1 leaves "
            "no attempt for it: set run.attempts to 2 or more"
        )
    if shows and acting.profile != teacher.profile:
        raise ConfigError(
            f"[policy.teacher] attempts become exemplars of the agent, and prompts of {teacher.name!r} are "
            f"{teacher.profile}, those of {acting.name!r} {acting.profile}: give both one profile"
        )
    if config.exemplars.gold and not isinstance(environment, HasGold):
        raise ConfigError(
            f"[exemplars] gold keeps what the environment does itself, and environment {environment.name!r} has no "
            "`gold(task)`: give it one, or leave exemplars.gold out"
        )
    if config.exemplars.gold and config.run.label_free:
        raise ConfigError("[exemplars] gold reads solutions, and run.label_free says that none is read; drop one")


def solved(trajectory: Trajectory, context: RunContext) -> bool:
    """Tell whether an episode is taken as a success: by its grade or, where none may be read, by what was judged of it
    or, where nobody judges, by an action that worked and ended it.
    """
    if not context.config.run.label_free:
        return trajectory.success
    judged = judged_success(trajectory, context)
    if judged is not None or context.config.run.judge == AGREEMENT:
        return judged is True
    worked = bool(trajectory.steps) and trajectory.steps[-1].error is None
    return worked and trajectory.stop is StopReason.DONE


def solution(first: Trajectory, context: RunContext) -> Trajectory | None:
    """Return the first attempt at a task of the batch that solved it; None where none did."""
    return next((each for each in (first, *_further(first, context)) if solved(each, context)), None)


def _further(first: Trajectory, context: RunContext) -> Iterator[Trajectory]:
    own = (GOLD,) if context.config.exemplars.gold else ()
    for which in (*range(2, context.config.run.attempts + 1), *own):
        found = context.store.trajectory(_id(first, which, context))
        if found is not None and not found.erased:
            yield found


async def _compared(first: Trajectory, batch: Batch, context: RunContext) -> None:
    """Make all attempts at a task and judge them by each other."""
    numbers = range(2, context.config.run.attempts + 1)
    made = [first, *await all_of(_made(first, number, batch, context) for number in numbers)]
    judge_by_agreement([each for each in made if not each.erased], context)


async def _again(first: Trajectory, batch: Batch, context: RunContext) -> None:
    for number in range(2, context.config.run.attempts + 1):
        trajectory = await _made(first, number, batch, context)
        if context.config.run.label_free and context.config.run.judge == "policy":
            await judge_episode(trajectory, context)
        if solved(trajectory, context):
            return


async def _made(first: Trajectory, number: int, batch: Batch, context: RunContext) -> Trajectory:
    """Return an attempt: the stored one, or a new one."""
    return context.store.trajectory(_id(first, number, context)) or await _run(first, number, batch, context)


async def _run(first: Trajectory, number: int, batch: Batch, context: RunContext) -> Trajectory:
    task, taught = first.task, context.config.policy.teacher.attempts
    shown = batch.shown(recalled(batch, task.id))
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
        arm=TEACHER if taught else ATTEMPT,
        search=search_of(batch, task, context),
    )
    acting = replace(context.acting, temperature=context.config.run.attempt_temperature)
    if taught:  # workers of a cluster hold the agent alone
        acting = replace(acting, teacher=None, executor=None)
    async with context.slots:
        with about(task.id):
            policy = context.policies.teacher if taught else context.policy
            trajectory = await rollout(context.environment, policy, plan, acting)
    context.store.add_trajectory(trajectory)
    context.tally.add(trajectory)
    context.observers.notify(context.tally.event(trajectory))
    return trajectory


async def _gold(first: Trajectory, context: RunContext) -> None:
    """Do a task as the environment solves it, and keep that as an episode that cost nothing."""
    task, environment = first.task, context.environment
    if context.store.trajectory(_id(first, GOLD, context)) is not None:
        return
    profile = context.policy.profile
    code = environment.action_format == "code" and profile == "full"
    actions = ask_list(environment, "gold", Action, task)
    said = [
        Reply(text=f"```python\n{each.text}\n```" if code else each.text, tool_calls=each.tool_calls)
        for each in actions
    ]
    plan = Attempt(
        id=_id(first, GOLD, context),
        task=task,
        seed=context.stream.episode_seed(task.id, MAIN),
        run_id=context.stream.run_id,
        arm=GOLD,
    )
    acting = replace(context.acting, max_steps=len(said), skills=False, teacher=None, executor=None)
    async with context.slots:
        trajectory = await rollout(environment, ScriptedPolicy(said, name=GOLD, profile=profile), plan, acting)
    if not trajectory.success:
        text = f"task {task.id!r}: the environment's own solution did not solve it, so nothing is shown of it"
        context.observers.notify(Notice(run_id=context.stream.run_id, text=text))
    steps = tuple(step.model_copy(update={"usage": Usage()}) for step in trajectory.steps)
    context.store.add_trajectory(trajectory.model_copy(update={"steps": steps, "usage": Usage()}))


def _id(first: Trajectory, which: int | str, context: RunContext) -> str:
    """Return the id of a further attempt: its number, or `GOLD`."""
    return context.stream.episode_id(first.task.id, f"{ATTEMPT}-{which}")
