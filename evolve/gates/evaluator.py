"""Runs tasks for the gates: under the knowledge in force, or as proposed ops would make it. The journal's stays as is.

Episodes of gates are journalled under `<run id>/gates` with an arm of their own: they are never the stream's, never
credited and never reflected on. One that was run with the same knowledge in its prompt, task, policy version and seed
is not run again, so a resumed run repeats none, and a task that is shown the same with and without the ops runs once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.config import Config
from evolve.injection import Shown, choose_core, recall_for
from evolve.metrics import passed
from evolve.parallel import all_of
from evolve.prompting import knowledge
from evolve.protocols import Environment
from evolve.replies import about
from evolve.rollout import Acting, Attempt, rollout
from evolve.seeds import id_for, seed_for
from evolve.statistics.paired import Passed
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Task, Trajectory
from memory.scratch import scratch
from memory.store import Store
from playbooks.core import core_records
from policies.protocols import Policy

ARM = "gate"


def episodes_of(run_id: str) -> str:
    """Return the run id under which the episodes of a run's gates are journalled."""
    return f"{run_id}/gates"


@dataclass(frozen=True)
class Evaluator:
    """The `Evaluate` of `evolve.statistics.decision`, over a workspace and an environment."""

    config: Config
    store: Store
    environment: Environment
    policy: Policy
    acting: Acting
    run_id: str

    async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Passed:
        """Return task id -> passed, None where an episode was not graded. Raises what `rollout` raises.

        Shown is what live recall finds, with the core that would be chosen now. Tasks that the knowledge came from are
        shown it too: the gate decides which tasks to ask about.
        """
        shown = self._shown(ops or (), tasks)
        limit = asyncio.Semaphore(self.config.run.concurrency)
        found = await all_of(self._episode(task, shown[task.id], seed, limit) for task in tasks)
        return passed(tasks, found)

    def _shown(self, ops: Sequence[DeltaOp], tasks: Sequence[Task]) -> dict[str, Shown]:
        config, namespace = self.config, self.config.memory.namespace
        if not config.playbook.enabled:
            return {task.id: Shown() for task in tasks}
        with scratch(self.store) as copy:
            if ops:
                copy.commit(namespace, ops, actor=ARM)
            view: KnowledgeView = copy.view(namespace)
            core = core_records(choose_core(config, view, self.policy, 0), view)
            return {task.id: recall_for(copy, config, task, core, self.policy) for task in tasks}

    async def _episode(self, task: Task, shown: Shown, seed: int, limit: asyncio.Semaphore) -> Trajectory:
        said = knowledge(shown.core, shown.recalled, self.policy.profile)
        whose = (self.policy.name, self.policy.version, repr(self.acting), self.environment.name)
        episode_id = id_for("ga", *whose, task.model_dump_json(), said, seed)
        stored = self.store.trajectory(episode_id)
        if stored is not None:
            return stored
        attempt = Attempt(
            id=episode_id,
            task=task,
            seed=seed_for(seed, task.id),
            core=shown.core,
            recalled=shown.recalled,
            injected=shown.injected,
            run_id=episodes_of(self.run_id),
            arm=ARM,
        )
        async with limit:
            with about(task.id):
                trajectory = await rollout(self.environment, self.policy, attempt, self.acting)
        self.store.add_trajectory(trajectory)
        return trajectory
