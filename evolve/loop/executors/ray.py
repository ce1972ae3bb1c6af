"""Episodes of a run on a Ray cluster (`evolve.loop.executors.cluster`), by workers that ask the model themselves.

An episode is a job of its own: a task, what is shown with it, and a seed. A worker makes environment, policies and
store from the run's configuration, once, and journals each reply before it is used, as the run itself does. So a job
whose worker died is done again, and what was journalled is not asked twice. Everything else stays with the run: recall,
reflection, gates, commits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from evolve.config.file import find_modules_of
from evolve.config.model import Config
from evolve.episode.journalled_replies import about
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.errors import ConfigError
from evolve.loop import assembly as app
from evolve.loop import role_policies
from evolve.loop.executors.cluster import Packed, Workers, connected, machines, placed
from evolve.loop.executors.sources import code_of, require_same
from evolve.loop.rollout_settings import rollout_config
from evolve.protocols import Environment
from memory.errors import JournalError, SchemaTooNew
from memory.records import Trajectory, Usage, new_id
from memory.store import Store
from policies.budget import Budget
from policies.protocols import Policy
from policies.roles import Policies

log = logging.getLogger(__name__)
PAUSES = (5.0, 15.0, 45.0)
"""Seconds before an episode is done again whose worker could not use the workspace."""


@dataclass(frozen=True)
class _Parts:
    """What a worker acts with."""

    environment: Environment
    policies: Policies
    acting: RolloutConfig
    store: Store


class Worker:
    """A process of the cluster that does episodes of one run."""

    def __init__(self, config: Config, run_id: str, of_the_run: Mapping[str, str]) -> None:
        """`of_the_run` is what `acts_with` returned where the run is."""
        self._config, self._run_id, self._process = config, run_id, new_id()
        self._of_the_run = of_the_run
        self._open, self._starting = AsyncExitStack(), asyncio.Lock()
        self._budget = Budget(together=False)  # the driver ends the work of all
        self._parts: _Parts | None = None

    async def ready(self) -> None:
        """Make what episodes need. Raises `RunMismatch` where that is something else than the run's."""
        await self._started()

    async def episode(self, packed: Packed, temperature: float) -> tuple[Trajectory, str, Usage]:
        """Return the trajectory of an attempt, which is not stored here; this process, and all it has asked for so far.

        What was journalled before is asked of nobody, and is not in it.
        """
        own = await self._started()
        attempt, acting = packed.unpacked(), replace(own.acting, temperature=temperature)
        if attempt.search is not None:
            attempt = replace(attempt, search=replace(attempt.search, store=own.store))
        with about(attempt.task.id):
            done = await rollout(own.environment, own.policies.acting, attempt, acting)
        return done, self._process, self._budget.spent

    async def _started(self) -> _Parts:
        async with self._starting:
            if self._parts is None:
                self._parts = await self._start()
        return self._parts

    async def _start(self) -> _Parts:
        config = self._config
        find_modules_of(config)
        async with AsyncExitStack() as opening:
            environment = app.make_environment(config)
            opened = await opening.enter_async_context(role_policies.opened(config.policy, config.workspace, None, {}))
            require_same(acts_with(config, opened), self._of_the_run)
            count_tokens = opened.acting.count_tokens
            store = opening.enter_context(app.open_store(_without_index(config), count_tokens, owner=False))
            policies = role_policies.journalled(opened, config, store, self._run_id, self._budget)
            parts = _Parts(environment, policies, rollout_config(config, environment, policies), store)
            self._open = opening.pop_all()
        return parts


def _without_index(config: Config) -> Config:
    """Return settings with no index on a server where episodes do not search: it has connections of its own."""
    if config.playbook.search_k:
        return config
    return config.model_copy(update={"memory": config.memory.model_copy(update={"index": "exact"})})


def acts_with(config: Config, policies: Policies) -> dict[str, str]:
    """Return what decides an episode besides the settings: the versions of the policies, and a hash of the code."""
    return {"policy": policies.acting.version, **role_policies.names(policies), "code": code_of(config)}


class RayExecutor:
    """Hands episodes to the workers in turn; see `evolve.episode.rollout.Executor`."""

    def __init__(self, workers: Workers, budget: Budget) -> None:
        self._workers, self._budget = workers, budget
        self._charged: dict[str, Usage] = {}

    async def episode(
        self, environment: Environment, policy: Policy, attempt: Attempt, acting: RolloutConfig
    ) -> Trajectory:
        """Return the trajectory that a worker comes to, in an environment and with a policy that are its own.

        Raises what `rollout` raises, `BudgetExceeded` before an episode that begins after a limit was reached,
        `WorkerLost`, and `JournalError` after `PAUSES`. Limits are looked at between episodes, so they can be overrun
        by those under way, which are waited for.
        """
        done = await self._budget.charged(lambda: self._done(attempt, acting.temperature), self._used)
        return done[0]

    async def _done(self, attempt: Attempt, temperature: float) -> tuple[Trajectory, str, Usage]:
        """Have an episode done, again after a pause where the worker lost the workspace; its replies are kept."""
        for pause in PAUSES:
            try:
                return await self._workers.episode(attempt, temperature)
            except SchemaTooNew:
                raise
            except JournalError as lost:
                log.warning("an episode is done again in %g s: its worker cannot use the workspace (%s)", pause, lost)
                await asyncio.sleep(pause)
        return await self._workers.episode(attempt, temperature)

    def _used(self, done: tuple[Trajectory, str, Usage]) -> Usage:
        """Return what a process has asked for since it last told. Episodes may tell in another order than they end."""
        _, process, asked = done
        before = self._charged.get(process, Usage())
        if asked.calls <= before.calls:
            return Usage()
        self._charged[process] = asked
        return Usage(**{name: getattr(asked, name) - getattr(before, name) for name in Usage.model_fields})


@asynccontextmanager
async def opened(config: Config, run_id: str, policies: Policies, budget: Budget) -> AsyncGenerator[RayExecutor]:
    """Give an executor; a cluster that was started for it ends with it. `policies` are those of the run.

    Raises `ConfigError` for several machines without `memory.database`, and where there is no room, `RunMismatch` for
    workers that would act with other policies or other code.
    """
    with connected():
        if machines() > 1 and not config.memory.database:
            raise ConfigError(
                f"the Ray cluster has {machines()} machines, and this workspace is a file of one; move it to a "
                "server (`evolve workspace move`)"
            )
        elsewhere = config.model_copy(update={"root": config.root.resolve()})
        arguments = (elsewhere, run_id, acts_with(elsewhere, policies))
        async with placed(Worker, arguments, config.run.workers, config.run.concurrency) as workers:
            yield RayExecutor(workers, budget)
