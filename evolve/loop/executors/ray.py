"""Episodes on a Ray cluster: that of RAY_ADDRESS, one that was started here, or one that is started by this run.

An episode is a job of its own: a task, what is shown with it, and a seed. A worker makes environment, policies and
store from the run's configuration, once, and journals each reply before it is used, as the run itself does. So a job
whose worker died is done again, and what was journalled is not asked twice. Everything else stays with the run: recall,
reflection, gates, commits.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read once, when ray is imported; nothing is told to anybody

from evolve.errors import ConfigError, RunMismatch, WorkerLost

try:
    import ray as _ray
    from ray.exceptions import RayError, RayTaskError
except ImportError as missing:
    raise ConfigError("`run.executor` = 'ray' needs the package: pip install 'evolve-agents[ray]'") from missing

from evolve.config.file import find_modules_of
from evolve.config.model import Config
from evolve.episode.journalled_replies import about
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.loop import assembly as app
from evolve.loop import role_policies
from evolve.loop.rollout_settings import rollout_config
from evolve.protocols import Environment
from memory.kinds import parse_record
from memory.records import Trajectory, Usage, new_id
from memory.store import Store
from policies.budget import Budget
from policies.roles import Policies

ray: Any = _ray
"""Its types are not told for the most part."""
log = logging.getLogger(__name__)
START_SECONDS = 60
"""How long a worker may take until it is ready: it waits for a free processor, and loads the model."""
RETRIES = 3
"""How often a job is done again whose worker died."""
_STORE_BYTES = 100 * 1024 * 1024
"""Shared memory of a cluster that is started here: a trajectory is some kilobytes."""
Records = dict[str, list[dict[str, Any]]]
"""The records of an attempt, by its fields, as data: the class of a record of some kind is made where it is asked for,
and cannot always be found by its name elsewhere."""
_RECORDS = ("core", "recalled", "skills", "exemplars")


def _packed(attempt: Attempt) -> tuple[Attempt, Records]:
    records = {name: [record.model_dump(mode="json") for record in getattr(attempt, name)] for name in _RECORDS}
    search = replace(attempt.search, store=None) if attempt.search else None
    return replace(attempt, **dict.fromkeys(_RECORDS, ()), search=search), records


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
        self._budget = Budget()
        self._parts: _Parts | None = None
        self._versions: dict[str, str] = {}

    async def ready(self) -> dict[str, str]:
        """Make what episodes need, and return which versions answer: the acting policy's and the roles'."""
        await self._started()
        return self._versions

    async def episode(self, attempt: Attempt, records: Records, temperature: float) -> tuple[Trajectory, str, Usage]:
        """Return the trajectory of an attempt, which is not stored here; this process, and all it has asked for so far.

        What was journalled before is asked of nobody, and is not in it.
        """
        own = await self._started()
        shown = {name: tuple(map(parse_record, some)) for name, some in records.items()}
        search = replace(attempt.search, store=own.store) if attempt.search else None
        acting = replace(own.acting, temperature=temperature)
        with about(attempt.task.id):
            attempt = replace(attempt, **shown, search=search)
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

    def __init__(self, workers: Sequence[Any], budget: Budget) -> None:
        self._workers, self._budget = workers, budget
        self._busy = [0] * len(workers)
        self._charged: dict[str, Usage] = {}

    async def episode(self, attempt: Attempt, acting: RolloutConfig) -> Trajectory:
        """Return the trajectory that the least busy worker comes to.

        Raises what `rollout` raises, `BudgetExceeded` before an episode that begins after a limit was reached, and
        `WorkerLost`. Limits are looked at between episodes, so they can be overrun by those under way.
        """
        self._budget.check()
        at = self._busy.index(min(self._busy))
        self._busy[at] += 1
        try:
            trajectory, process, asked = await self._workers[at].episode.remote(*_packed(attempt), acting.temperature)
        except RayTaskError as failed:
            raise failed.cause from None
        except RayError as lost:
            raise WorkerLost(
                f"task {attempt.task.id!r}: its worker was lost {RETRIES + 1} times ({type(lost).__name__}); what was "
                "done is kept. Look at Ray's logs, then `evolve resume`"
            ) from lost
        finally:
            self._busy[at] -= 1
        self._charge(process, asked)
        return trajectory

    def _charge(self, process: str, asked: Usage) -> None:
        """Count what a process has asked for since it last told. Episodes may tell in another order than they ended."""
        before = self._charged.get(process, Usage())
        if asked.calls > before.calls:
            more = {name: getattr(asked, name) - getattr(before, name) for name in Usage.model_fields}
            self._budget.charge(Usage(**more))
            self._charged[process] = asked


async def _workers(config: Config, run_id: str, policies: Policies) -> list[Any]:
    """Start workers, and return those for which the cluster has room.

    Raises `ConfigError` where it has room for none, and `RunMismatch` where one would answer with other policies.
    """
    count = config.run.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    placed = config.model_copy(update={"root": config.root.resolve()})
    remote = ray.remote(Worker).options(
        num_cpus=1, max_restarts=-1, max_task_retries=RETRIES, max_concurrency=config.run.concurrency
    )
    started = [remote.remote(placed, run_id) for _ in range(min(count, config.run.concurrency))]
    answers = {each.ready.remote(): each for each in started}
    room, _ = await asyncio.to_thread(ray.wait, list(answers), num_returns=len(started), timeout=START_SECONDS)
    for answer in answers.keys() - set(room):
        ray.kill(answers[answer])
    if not room:
        raise ConfigError(
            f"the Ray cluster has no processor free for a worker ({START_SECONDS} s were waited); set run.workers to "
            "fewer, or wait for what uses it"
        )
    if len(room) < len(started):
        log.warning("the Ray cluster has room for %d of %d workers", len(room), len(started))
    expected = _versions(policies)
    for answer in room:
        try:
            found = await answer
        except RayTaskError as failed:
            raise failed.cause from None
        if found != expected:
            raise RunMismatch(
                f"a worker would answer with {found}, and the run answers with {expected}; generations of a policy are "
                "files in .evolve/policies of each machine: copy them there, or serve the model"
            )
    return [answers[answer] for answer in room]


@asynccontextmanager
async def opened(config: Config, run_id: str, policies: Policies, budget: Budget) -> AsyncGenerator[RayExecutor]:
    """Give an executor; a cluster that was started for it ends with it. `policies` are those of the run.

    Raises `ConfigError` for several machines without `memory.database`, and where there is no room, `RunMismatch` for
    workers that would answer with other policies.
    """
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
        workers = await _workers(config, run_id, policies)
        try:
            yield RayExecutor(workers, budget)
        finally:
            for worker in workers:
                ray.kill(worker)
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
