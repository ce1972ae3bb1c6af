"""One episode of the batch; fanned out over its tasks and their controls."""

from __future__ import annotations

from typing import Any

from evolve.episode.arms import NO_MEMORY
from evolve.episode.injection import Shown
from evolve.episode.journalled_replies import about
from evolve.episode.rollout import Attempt, rollout
from evolve.episode.search import Search, search_for
from evolve.episode.skill_runtime.prelude import left_out
from evolve.loop.batch import Batch
from evolve.loop.nodes.expose import hidden
from evolve.loop.nodes.recall import recalled
from evolve.loop.state import EpisodeJob, RunContext
from memory.records import Task


async def act(episode: EpisodeJob, context: RunContext) -> dict[str, Any]:
    """Run the episode and store its trajectory. One that is stored already is not run again."""
    stream, arm, batch = context.stream, episode["arm"], context.batch(episode["batch"])
    task = next(task for task in stream.batch(batch.index) if task.id == episode["task_id"])
    episode_id = stream.episode_id(task.id, arm)
    if episode_id in batch:
        return {"episodes": [episode_id]}
    shown = Shown() if arm == NO_MEMORY else batch.shown(recalled(batch, task.id))
    attempt = Attempt(
        id=episode_id,
        task=task,
        seed=stream.episode_seed(task.id, arm),
        core=shown.core,
        recalled=shown.recalled,
        injected=shown.injected,
        skills=shown.skills,
        exemplars=shown.exemplars,
        run_id=stream.run_id,
        arm=arm,
        search=None if arm == NO_MEMORY else search_of(batch, task, context),
    )
    async with context.slots:
        with about(task.id):
            trajectory = await rollout(context.environment, context.policy, attempt, context.acting)
    context.batch(batch.index).add(trajectory)
    if trajectory.prelude_error:
        left_out(context.store, trajectory, shown.skills)
    context.tally.add(trajectory)
    context.observers.notify(context.tally.event(trajectory))
    return {"episodes": [episode_id]}


def search_of(batch: Batch, task: Task, context: RunContext) -> Search | None:
    """Return how an episode of the stream can search; None where it cannot."""
    return search_for(context.store, context.config, task, context.policy.profile, hidden=hidden(batch, task.id))
