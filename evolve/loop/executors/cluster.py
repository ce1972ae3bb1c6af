"""A Ray cluster and this process's workers there: that of RAY_ADDRESS, one of this machine, or one started here."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read once, when ray is imported; nothing is told to anybody

from evolve.errors import ConfigError, WorkerLost

try:
    import ray as _ray
    from ray.exceptions import RayError, RayTaskError
except ImportError as missing:
    raise ConfigError("`run.executor` = 'ray' needs the package: pip install 'evolve-agents[ray]'") from missing

from evolve.episode.rollout import Attempt
from memory.kinds import parse_record

ray: Any = _ray
"""Its types are not told for the most part."""
log = logging.getLogger(__name__)
START_SECONDS, LATE_SECONDS = 60, 240
"""How long all workers may take until they are ready, and how much longer the first of them: each waits for a free
processor, and loads what it needs."""
RETRIES = 3
"""How often a job is done again whose worker died."""
BEAT_SECONDS = 10
SILENT_BEATS = (START_SECONDS + LATE_SECONDS) // BEAT_SECONDS
"""How often it is looked whether a worker answers, and how many times in a row it may not: it has as long as one that
starts, and five seconds for each of its jobs, 64 of them at most, which may all be due before it. Looks are counted and
not seconds, since this process may be stopped meanwhile."""
_STORE_BYTES = 100 * 1024 * 1024
"""Shared memory of a cluster that is started here: a trajectory is some kilobytes."""
_RECORDS = ("core", "recalled", "skills", "exemplars")


@dataclass(frozen=True)
class Packed:
    """An attempt on its way to a worker, without the store that it searches in.

    Its records are data, by their fields: the class of a record of some kind is made where it is asked for, and cannot
    always be found by its name elsewhere.
    """

    attempt: Attempt
    records: dict[str, list[dict[str, Any]]]

    @staticmethod
    def of(attempt: Attempt) -> Packed:
        """Pack an attempt."""
        records = {name: [record.model_dump(mode="json") for record in getattr(attempt, name)] for name in _RECORDS}
        search = replace(attempt.search, store=None) if attempt.search else None
        return Packed(replace(attempt, **dict.fromkeys(_RECORDS, ()), search=search), records)

    def unpacked(self) -> Attempt:
        """Return the attempt with its records."""
        return replace(self.attempt, **{name: tuple(map(parse_record, some)) for name, some in self.records.items()})


class Workers:
    """The workers for which there is room. Each job goes to the one that does fewest."""

    def __init__(self, workers: Sequence[Any]) -> None:
        self._workers = workers
        self._busy = [0] * len(workers)

    async def episode(self, attempt: Attempt, *more: Any) -> Any:
        """Return what `episode` of a worker returns for a packed attempt and `more`.

        Raises what it raises, and `WorkerLost`. Cancelled, the job is cancelled there.
        """
        at = self._busy.index(min(self._busy))
        self._busy[at] += 1
        job = self._workers[at].episode.remote(Packed.of(attempt), *more)
        try:
            return await job
        except asyncio.CancelledError:
            ray.cancel(job)
            raise
        except RayTaskError as failed:
            raise failed.cause from None
        except RayError as lost:
            raise WorkerLost(
                f"task {attempt.task.id!r}: its worker was lost {RETRIES + 1} times ({type(lost).__name__}); what was "
                "done is kept. Look at Ray's logs, then `evolve resume`, or begin the same training again"
            ) from lost
        finally:
            self._busy[at] -= 1


@contextmanager
def connected() -> Generator[None]:
    """Be connected to the cluster; one that was started for it ends with it. Raises `ConfigError` for none there."""
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), **quiet)
    except ConnectionError as missing:
        if "RAY_ADDRESS" in os.environ:
            address = os.environ["RAY_ADDRESS"]
            raise ConfigError(
                f"no Ray cluster at RAY_ADDRESS = {address!r}, or this machine is no node of it: {missing}. Run "
                f"`ray start --address {address} --num-cpus 0` here first"
            ) from missing
        ray.init(include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet)
    except (RuntimeError, ValueError) as refused:  # of another version of Ray or Python, or no address
        raise ConfigError(f"the Ray cluster cannot be used from here: {refused}") from refused
    try:
        yield
    finally:
        ray.shutdown()


def machines() -> int:
    """Return how many machines the cluster has."""
    return len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]})


@asynccontextmanager
async def placed(worker: type, arguments: Sequence[Any], count: int | None, at_once: int) -> AsyncGenerator[Workers]:
    """Start so many workers of a class, None: one for each processor; give those that became `ready()`, and end them.

    Each does `at_once` jobs at most; one that hangs is killed, and begun anew. Raises `ConfigError` where the cluster
    has room for none, and what `ready` raises.
    """
    settings = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": RETRIES}
    remote = ray.remote(worker).options(**settings, max_concurrency=at_once + 1)  # it answers beside its jobs
    most = min(count or max(1, int(ray.cluster_resources().get("CPU", 1))), at_once)
    started = [remote.remote(*arguments) for _ in range(most)]
    answers = {each.ready.remote(): each for each in started}
    room, _ = await asyncio.to_thread(ray.wait, list(answers), num_returns=len(started), timeout=START_SECONDS)
    if not room:
        log.warning("no worker is ready after %d s; waiting for the first, %d s at most", START_SECONDS, LATE_SECONDS)
        room, _ = await asyncio.to_thread(ray.wait, list(answers), num_returns=1, timeout=LATE_SECONDS)
    for answer in answers.keys() - set(room):
        ray.kill(answers[answer])
    if not room:
        raise ConfigError(
            "the Ray cluster has no processor free for a worker, or none for long enough to start it "
            f"({START_SECONDS + LATE_SECONDS} s were waited); set run.workers to fewer, or wait for what uses it"
        )
    if len(room) < len(started):
        log.warning("the Ray cluster has room for %d of %d workers", len(room), len(started))
    patience = SILENT_BEATS + min(at_once, 64) // 2
    watching = [asyncio.ensure_future(_watched(answers[answer], patience)) for answer in room]
    try:
        try:
            for answer in room:
                await answer
        except RayTaskError as failed:
            raise failed.cause from None
        except RayError as lost:
            raise ConfigError(
                f"a worker did not start on the Ray cluster ({lost}); each of its machines needs evolve, and the "
                "modules that the settings name"
            ) from lost
        yield Workers([answers[answer] for answer in room])
    finally:
        for each in watching:
            each.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        for answer in room:
            ray.kill(answers[answer])


async def _watched(worker: Any, patience: int) -> None:
    """Kill a worker whenever it did not answer for so many looks: Ray begins it anew and does its jobs again.

    Never returns.

    Its event loop answers, so a worker that waits for a model does not hang, and one whose environment blocks it does.
    """
    while True:
        answer = worker.ready.remote()
        for _ in range(patience):
            await asyncio.sleep(BEAT_SECONDS)
            if ray.wait([answer], timeout=0)[0]:
                break
        else:
            log.warning(
                "a worker has not answered for %d s: it was stopped, an environment blocks its event loop, or the "
                "cluster has no place for it; it is killed, and its episodes are done again",
                patience * BEAT_SECONDS,
            )
            ray.kill(worker, no_restart=False)
