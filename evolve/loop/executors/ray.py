"""Episodes on a Ray cluster: that of RAY_ADDRESS, one that was started here, or one that is started by this run.

An episode is a job of its own: a task, what is shown with it, and a seed. A worker makes environment, policies and
store from the run's configuration, once, and journals each reply before it is used, as the run itself does. So a job
whose worker died is done again, and what was journalled is not asked twice. Everything else stays with the run: recall,
reflection, gates, commits.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read once, when ray is imported; nothing is told to anybody

from evolve.errors import ConfigError, WorkerLost

try:
    import ray as _ray
    from ray.exceptions import RayActorError, RayTaskError
except ImportError as missing:
    raise ConfigError("`run.executor` = 'ray' needs the package: pip install 'evolve-agents[ray]'") from missing

from evolve.config.file import find_modules_of
from evolve.config.model import Config
from evolve.episode.journalled_replies import about
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.loop import assembly as app
from evolve.loop import role_policies
from evolve.loop.acting import rollout_config
from memory.records import Trajectory
from policies.budget import Budget

ray: Any = _ray
"""Its types are not told for the most part."""
RETRIES = 3
"""How often a job is done again whose worker died."""
_STORE_BYTES = 100 * 1024 * 1024
"""Shared memory of a cluster that is started here: a trajectory is some kilobytes."""


class Worker:
    """A process of the cluster that does episodes of one run."""

    def __init__(self, config: Config, run_id: str) -> None:
        self._config, self._run_id = config, run_id
        self._open = AsyncExitStack()
        self._ready = False

    async def episode(self, attempt: Attempt, temperature: float) -> Trajectory:
        """Return the trajectory of an attempt; it is not stored here."""
        if not self._ready:
            await self._start()
        with about(attempt.task.id):
            return await rollout(
                self._environment, self._policy, attempt, replace(self._acting, temperature=temperature)
            )

    async def _start(self) -> None:
        self._ready = True
        config = self._config
        find_modules_of(config)
        self._environment = app.make_environment(config)
        opened = await self._open.enter_async_context(role_policies.opened(config.policy, config.workspace, None, {}))
        store = self._open.enter_context(app.open_store(config, opened.acting.count_tokens, owner=False))
        policies = role_policies.journalled(opened, config, store, self._run_id, Budget())
        self._policy, self._acting = policies.acting, rollout_config(config, self._environment, policies)


class RayExecutor:
    """Hands episodes to the workers in turn; see `evolve.episode.rollout.Executor`."""

    def __init__(self, config: Config, run_id: str, budget: Budget) -> None:
        self._budget = budget
        count = config.run.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote = ray.remote(Worker).options(
            num_cpus=1, max_restarts=-1, max_task_retries=RETRIES, max_concurrency=config.run.concurrency
        )
        self._workers = [remote.remote(config, run_id) for _ in range(min(count, config.run.concurrency))]
        self._busy = [0] * len(self._workers)

    async def episode(self, attempt: Attempt, acting: RolloutConfig) -> Trajectory:
        """Return the trajectory that the least busy worker comes to.

        Raises what `rollout` raises, `BudgetExceeded` before an episode that begins after a limit was reached, and
        `WorkerLost`. Limits are looked at between episodes, so they can be overrun by those under way.
        """
        self._budget.check()
        at = self._busy.index(min(self._busy))
        self._busy[at] += 1
        try:
            trajectory: Trajectory = await self._workers[at].episode.remote(attempt, acting.temperature)
        except RayTaskError as failed:
            raise failed.cause from None
        except RayActorError as lost:
            raise WorkerLost(
                f"task {attempt.task.id!r}: its worker died {RETRIES + 1} times; what was done is kept. Look at Ray's "
                "logs, then `evolve resume`"
            ) from lost
        finally:
            self._busy[at] -= 1
        self._budget.charge(trajectory.usage)
        return trajectory

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            ray.kill(worker)


@asynccontextmanager
async def opened(config: Config, run_id: str, budget: Budget) -> AsyncGenerator[RayExecutor]:
    """Give an executor; a cluster that was started for it ends with it.

    Raises `ConfigError` for several machines without `memory.database`, and for searches inside episodes.
    """
    if config.playbook.search_k:
        raise ConfigError("episodes on a Ray cluster cannot search while they act; set playbook.search_k = 0")
    mine = not ray.is_initialized()
    if mine:
        _connect()
    try:
        machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        if len(machines) > 1 and not config.memory.database:
            raise ConfigError(
                f"the Ray cluster has {len(machines)} machines, and this workspace is a file of one; move it to a "
                "server (`evolve workspace move`)"
            )
        executor = RayExecutor(config, run_id, budget)
        try:
            yield executor
        finally:
            executor.close()
    finally:
        if mine:
            ray.shutdown()


def _connect() -> None:
    """Connect to the cluster of RAY_ADDRESS, or to one that was started on this machine; else start one."""
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), **quiet)
    except ConnectionError as missing:
        if "RAY_ADDRESS" in os.environ:
            raise ConfigError(f"no Ray cluster at RAY_ADDRESS = {os.environ['RAY_ADDRESS']!r}: {missing}") from missing
        ray.init(include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet)
