"""Episodes on a Ray cluster whose model calls are answered here: the worlds are there, and who answers is an object.

For trainings: the weights that are trained answer in this process or behind it, replies are kept and replayed here, and
what was sampled is trained on here. For comparisons: their lives take turns with one policy. So a worker makes nothing
but the worlds, from their configurations, and asks for each reply through a relay. The calls of an episode are
numbered: where its worker died, it is done again by another one, and is told again what it was told.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

from evolve.config.file import find_modules_of
from evolve.config.model import Config
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.errors import WorkerLost
from evolve.loop.assembly import make_environment
from evolve.loop.executors.cluster import Packed, Workers, connected, placed, ray
from evolve.loop.executors.sources import code_of, require_same
from evolve.protocols import Environment
from memory.records import Trajectory, new_id
from policies.errors import PolicyError, PolicyUnavailable
from policies.protocols import Message, Policy, Profile, Reply, SamplingParams

OPEN_CALLS = 100_000
"""Calls that the relay holds at most; a call waits there until it is answered."""
OPEN_EPISODES = 10_000
"""Episodes of one worker. How many are open in a world at the same time, the world says itself (`max_concurrency`)."""


class Call(NamedTuple):
    """A model call of an episode."""

    episode: str
    number: int
    """Which of the episode's calls it is."""
    messages: tuple[Message, ...]
    params: SamplingParams


class Relay:
    """Between workers and the process that answers: an actor, since workers cannot call a process."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Call]] = []
        self._answers: dict[int, asyncio.Future[Reply | Exception]] = {}
        self._numbers = itertools.count()
        self._new = asyncio.Event()

    async def ask(self, call: Call) -> Reply | Exception:
        """Return what answers a call, when it is there."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, call))
        self._new.set()
        try:
            return await self._answers[number]
        finally:
            del self._answers[number]

    async def asked(self) -> list[tuple[int, Call]]:
        """Return what was asked since the last time, as soon as there is any, each with its number here."""
        await self._new.wait()
        self._new.clear()
        waiting, self._waiting = self._waiting, []
        return waiting

    async def answer(self, number: int, answer: Reply | Exception) -> None:
        """Take the answer to a call; nobody may wait for it any more."""
        waits = self._answers.get(number)
        if waits is not None and not waits.done():
            waits.set_result(answer)


@dataclass(frozen=True)
class Asking:
    """Who is asked, as an episode sees it."""

    episode: str
    name: str
    version: str
    profile: Profile


class AskingPolicy:
    """Asks through the relay. An episode counts no tokens and constrains no reply."""

    supports_schema = False

    def __init__(self, asking: Asking, relay: Any) -> None:
        self.name, self.version = asking.name, asking.version
        self.profile: Profile = asking.profile
        self._episode, self._relay, self._calls = asking.episode, relay, itertools.count()

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the reply that was given there. Raises what was raised there."""
        answer = await self._relay.ask.remote(Call(self._episode, next(self._calls), tuple(messages), params))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def count_tokens(self, text: str) -> int:
        """Raise `NotImplementedError`."""
        raise NotImplementedError("tokens are counted where the policy is, before an episode is sent")

    async def aclose(self) -> None:
        """Close nothing: the policy is another process's."""


@dataclass(frozen=True)
class WorldSettings:
    """What an environment is made of."""

    key: str
    """Equal for equal settings."""
    config: Config
    code: str
    """Of `code_of`, where the run is."""

    @staticmethod
    def of(config: Config) -> WorldSettings:
        """Return the world of a configuration, for workers that stand in other folders."""
        placed = config.model_copy(update={"root": config.root.resolve()})
        key = sha256(f"{placed.root} {placed.model_dump_json()}".encode()).hexdigest()
        return WorldSettings(key, placed, code_of(config))


class Worlds:
    """A process of the cluster in which episodes act."""

    def __init__(self, relay: str) -> None:
        self._relay = ray.get_actor(relay)
        self._environments: dict[str, Environment] = {}

    async def ready(self) -> None:
        """Return when this process is there."""

    async def episode(self, packed: Packed, world: WorldSettings, acting: RolloutConfig, asking: Asking) -> Trajectory:
        """Return the trajectory of an attempt in a world, which is made once.

        Raises what `rollout` raises, and `RunMismatch` where its code here is not that of the run.
        """
        if world.key not in self._environments:
            find_modules_of(world.config)
            require_same({"code": code_of(world.config)}, {"code": world.code})
            self._environments[world.key] = make_environment(world.config)
        policy = AskingPolicy(asking, self._relay)
        return await rollout(self._environments[world.key], policy, packed.unpacked(), acting)


@dataclass
class _Open:
    """An episode that is under way."""

    policy: Policy
    context: Context = field(default_factory=copy_context)
    calls: dict[int, tuple[Call, asyncio.Task[Reply]]] = field(default_factory=dict[int, Any])

    def answer(self, call: Call) -> asyncio.Task[Reply]:
        """Return the answer to a call; to one that was asked before, the same."""
        known = self.calls.get(call.number)
        if known is None or known[0] != call:
            work = self.policy.generate(call.messages, call.params)
            known = call, asyncio.get_running_loop().create_task(work, context=self.context)
            self.calls[call.number] = known
        return known[1]

    def error(self) -> Exception | None:
        """Return what a call ended in, as it was raised here."""
        done = [task for _, task in self.calls.values() if task.done() and not task.cancelled()]
        return next((error for task in done if isinstance(error := task.exception(), Exception)), None)


def _sendable(error: BaseException | None) -> Exception | None:
    """Return what a worker is told of an error: a policy's as it is, since episodes tell these apart.

    Of a bug it is told the words. It may hold what cannot be sent, and is raised here as it was.
    """
    return error if error is None or isinstance(error, PolicyError) else RuntimeError(f"{error!r}")


class WorldsExecutor:
    """Has episodes done by workers and answers their calls; see `evolve.episode.rollout.Executor`."""

    def __init__(self, workers: Workers, relay: Any) -> None:
        self.relay = relay
        self._workers = workers
        self._worlds: list[tuple[Environment, WorldSettings]] = []
        self._open: dict[str, _Open] = {}
        self._answering = asyncio.ensure_future(self._answer_all())

    @property
    def under_way(self) -> int:
        """How many episodes are being done."""
        return len(self._open)

    def know(self, config: Config, environment: Environment) -> None:
        """Let episodes of an environment be done, which workers make of its configuration."""
        self._worlds.append((environment, WorldSettings.of(config)))

    async def episode(
        self, environment: Environment, policy: Policy, attempt: Attempt, acting: RolloutConfig
    ) -> Trajectory:
        """Return the trajectory that a worker comes to with the replies of `policy`, which is asked here.

        Raises what `rollout` raises, and `WorkerLost`. Cancelled, its calls are cancelled too.
        """
        opened = _Open(policy)
        asking = Asking(new_id(), policy.name, policy.version, policy.profile)
        self._open[asking.episode] = opened
        world = next(world for known, world in self._worlds if known is environment)
        job = asyncio.ensure_future(self._workers.episode(attempt, world, replace(acting, executor=None), asking))
        try:
            await asyncio.wait({job, self._answering}, return_when=asyncio.FIRST_COMPLETED)
            if not job.done():
                raise WorkerLost(
                    "the actor that model calls travel through is gone; what was done is kept. Look at Ray's logs, "
                    "then go on with the same command"
                ) from self._answering.exception()
            return job.result()
        except Exception:
            if (own := opened.error()) is not None:
                raise own from None
            raise
        finally:
            del self._open[asking.episode]
            left = [job, *(task for _, task in opened.calls.values())]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def close(self) -> None:
        """Answer no more."""
        self._answering.cancel()
        await asyncio.gather(self._answering, return_exceptions=True)

    async def _answer_all(self) -> None:
        async with asyncio.TaskGroup() as answers:
            while True:
                for number, call in await self.relay.asked.remote():
                    answers.create_task(self._tell(number, call))

    async def _tell(self, number: int, call: Call) -> None:
        answer = PolicyUnavailable("the episode was given up")
        if (episode := self._open.get(call.episode)) is not None:
            asked = episode.answer(call)
            await asyncio.wait({asked})
            if not asked.cancelled():
                answer = _sendable(asked.exception()) or asked.result()
        await self.relay.answer.remote(number, answer)


_SHARED: ContextVar[WorldsExecutor | None] = ContextVar("worlds executor", default=None)


@asynccontextmanager
async def opened(workers: int | None) -> AsyncGenerator[WorldsExecutor]:
    """Give an executor with so many workers, None: one for each processor; inside of another one's block, that one.

    Raises `ConfigError` where there is no room.
    """
    if (shared := _SHARED.get()) is not None:
        yield shared
        return
    with connected():
        name = f"evolve-relay-{new_id()}"  # an actor that is an argument would have to be kept for workers begun anew
        relay = ray.remote(Relay).options(name=name, num_cpus=0, max_concurrency=OPEN_CALLS).remote()
        try:
            async with placed(Worlds, (name,), workers, OPEN_EPISODES) as there:
                executor = WorldsExecutor(there, relay)
                _SHARED.set(executor)
                try:
                    yield executor
                finally:
                    _SHARED.set(None)
                    await executor.close()
        finally:
            ray.kill(relay)
