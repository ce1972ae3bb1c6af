"""Episodes of a run on a Ray cluster (`evolve.loop.executors.cluster`), by workers that ask the model themselves.

An episode is a job of its own: a task, what is shown with it, and a seed. A worker makes environment, policies and
store from the run's configuration, once, and journals each reply before it is used, as the run itself does. So a job
whose worker died is done again, and what was journalled is not asked twice. Everything else stays with the run: recall,
reflection, gates, commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from evolve.config.file import find_modules_of
from evolve.config.model import Config
from evolve.episode.journalled_replies import about
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.errors import ConfigError, RunMismatch
from evolve.loop import assembly as app
from evolve.loop import role_policies
from evolve.loop.executors.cluster import Packed, Workers, connected, machines, placed
from evolve.loop.rollout_settings import rollout_config
from evolve.protocols import Environment
from memory.records import Trajectory, Usage, new_id
from memory.store import Store
from policies.budget import Budget
from policies.protocols import Policy
from policies.roles import Policies


@dataclass(frozen=True)
class _Parts:
    """What a worker acts with."""

    environment: Environment
    policies: Policies
    acting: RolloutConfig
    store: Store


class Worker:
    """A process of the cluster that does episodes of one run."""

    def __init__(self, config: Config, run_id: str) -> None:
        self._config, self._run_id, self._process = config, run_id, new_id()
        self._open, self._starting = AsyncExitStack(), asyncio.Lock()
        self._budget = Budget(together=False)  # the driver ends the work of all
        self._parts: _Parts | None = None
        self._versions: dict[str, str] = {}

    async def ready(self) -> dict[str, str]:
        """Make what episodes need, and return which versions answer: the acting policy's and the roles'."""
        await self._started()
        return self._versions

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
        environment = app.make_environment(config)
        opened = await self._open.enter_async_context(role_policies.opened(config.policy, config.workspace, None, {}))
        self._versions = _versions(opened)
        store = self._open.enter_context(app.open_store(config, opened.acting.count_tokens, owner=False))
        policies = role_policies.journalled(opened, config, store, self._run_id, self._budget)
        return _Parts(environment, policies, rollout_config(config, environment, policies), store)


def _versions(policies: Policies) -> dict[str, str]:
    return {"policy": policies.acting.version, **role_policies.names(policies)}


class RayExecutor:
    """Hands episodes to the workers in turn; see `evolve.episode.rollout.Executor`."""

    def __init__(self, workers: Workers, budget: Budget) -> None:
        self._workers, self._budget = workers, budget
        self._charged: dict[str, Usage] = {}

    async def episode(
        self, environment: Environment, policy: Policy, attempt: Attempt, acting: RolloutConfig
    ) -> Trajectory:
        """Return the trajectory that a worker comes to, in an environment and with a policy that are its own.

        Raises what `rollout` raises, `BudgetExceeded` before an episode that begins after a limit was reached, and
        `WorkerLost`. Limits are looked at between episodes, so they can be overrun by those under way, which are waited
        for.
        """
        done = await self._budget.charged(lambda: self._workers.episode(attempt, acting.temperature), self._used)
        return done[0]

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
    workers that would answer with other policies.
    """
    with connected():
        if machines() > 1 and not config.memory.database:
            raise ConfigError(
                f"the Ray cluster has {machines()} machines, and this workspace is a file of one; move it to a "
                "server (`evolve workspace move`)"
            )
        elsewhere = config.model_copy(update={"root": config.root.resolve()})
        async with placed(Worker, (elsewhere, run_id), config.run.workers, config.run.concurrency) as workers:
            expected = _versions(policies)
            for found in workers.ready:
                if found != expected:
                    raise RunMismatch(
                        f"a worker would answer with {found}, and the run answers with {expected}; generations of a "
                        "policy are files in .evolve/policies of each machine: copy them there, or serve the model"
                    )
            yield RayExecutor(workers, budget)
