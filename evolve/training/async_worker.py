"""Rolls out batch after batch in a thread of its own while a trainer takes the rows, which are then a little old.

A batch is drawn, rolled out, and given its advantages as in `training.loop`; a group is sampled by one version, the one
that was served when it began. Where that is unloaded under it, all of the group is done again by the newest. What is
lost is counted: groups begun again (`restarts`), rows too old to be trained on (`stale`). Next is asked for only while
fewer rows wait than an update takes, so that what is trained on is seldom older than two updates.

`RolloutWorker` is what TRL calls a rollout worker; it knows no type of TRL's.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evolve.episode.instrumentation import WatchedPolicy
from evolve.episode.rollout import RolloutConfig
from evolve.parallel import all_of
from evolve.training.batch_figures import rollout_figures, tokens_per_s
from evolve.training.batches import episodes_of, prepared
from evolve.training.estimates import Counts, outcomes
from evolve.training.loop import Plan, World, draw, require_graded
from evolve.training.rollouts import ChainSpec, Rollout, roll
from evolve.training.workspace_rollouts import Methods
from policies.cache import CachedPolicy
from policies.errors import PolicyUnavailable
from policies.generations.errors import UnknownGeneration
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.rl.protocols import Array
from policies.rl.rows import TrainRow
from policies.rl.tracker import BetaTracker
from policies.rl.trainer import TrainingStopped
from policies.wrapped import WrappedPolicy

POLL_S = 0.05


class Sample(Protocol):
    """A row as the trainer takes it."""

    @property
    def model_version(self) -> int:
        """The version that sampled it."""
        ...


@dataclass(frozen=True)
class Made:
    """A sample, the episode that it is of, and the batch that the episode is of."""

    sample: Sample
    episode: str
    batch: int


@dataclass(frozen=True)
class Note:
    """What came of a batch."""

    figures: dict[str, float]
    outcomes: Counts


@dataclass(frozen=True)
class Source:
    """Where batches come from, and what is made of them. `samples` makes of rows with advantages what a trainer takes,
    in their order; `expected` says what is known of tasks by now."""

    worlds: Sequence[World]
    plan: Plan
    methods: Methods
    acting: RolloutConfig
    samples: Callable[[Sequence[TrainRow], Sequence[Array]], Sequence[Sample]]
    expected: Callable[[], BetaTracker]


class Buffer:
    """What waits for the trainer, the oldest first. What is too old when it is asked for is counted, and left out."""

    def __init__(self, max_staleness: int) -> None:
        self.version, self.stale = 0, 0
        self._max_staleness = max_staleness
        self._waiting: queue.Queue[Made] = queue.Queue()
        self._taken: deque[Made] = deque()

    def put(self, made: Made) -> None:
        """Let a sample wait."""
        self._waiting.put(made)

    def get(self, timeout: float | None = None) -> Sample:
        """Return the next sample. Raises `queue.Empty` where none came within `timeout` seconds."""
        while True:
            made = self._waiting.get(timeout=timeout)
            if self.version - made.sample.model_version <= self._max_staleness:
                self._taken.append(made)
                return made.sample
            self.stale += 1

    def qsize(self) -> int:
        """Return how many wait."""
        return self._waiting.qsize()

    def trained(self, rows: int) -> list[Made]:
        """Return the next so many that were taken: what an update was made of."""
        return [self._taken.popleft() for _ in range(rows)]


class RolloutWorker:
    """`speak` returns the policy of a version (it closes what they share); `first`: the batch to begin with."""

    def __init__(self, source: Source, speak: Callable[[int], Policy], buffer: Buffer, first: int = 0) -> None:
        self.rollout_buffer, self.first = buffer, first
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        """Stays empty: figures are told by `notes`."""
        self.restarts = 0
        self._source, self._speak = source, speak
        self._notes: queue.Queue[Note] = queue.Queue()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._replies = _Replies()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="rollouts", daemon=True)

    def start(self) -> None:
        """Begin to roll out."""
        self._thread.start()

    def stop(self) -> None:
        """Break off what is rolled out, and wait until the thread is gone."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def update_model_version(self, model_version: int) -> None:
        """Take note of the version that is served from now on."""
        self.rollout_buffer.version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raise what ended the thread, and `TrainingStopped` where no reply came for so many seconds."""
        if self._error is not None:
            raise self._error
        if (silent := time.monotonic() - self._replies.last) > stale_after_s:
            raise TrainingStopped(f"no reply for {silent:.0f} s; look at the server and the environment, then go on")

    def notes(self) -> list[Note]:
        """Return what came of the batches that were finished since this was asked."""
        return [self._notes.get() for _ in range(self._notes.qsize())]

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self._error = error

    async def _work(self) -> None:
        self._replies.last = time.monotonic()
        work = asyncio.ensure_future(self._batches())
        try:
            while not work.done() and not self._ended.is_set():
                await asyncio.wait({work}, timeout=POLL_S)
            if work.done():
                work.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await self._speak(self.rollout_buffer.version).aclose()

    async def _batches(self) -> None:
        plan, number, empty = self._source.plan, self.first, 0
        update = plan.chains * plan.length * plan.sampling.rollouts
        while True:
            while self.rollout_buffer.qsize() >= update:
                self._replies.last = time.monotonic()
                await asyncio.sleep(POLL_S)
            made = await self._batch(number)
            empty = 0 if made else empty + 1
            if empty == plan.limits.patience:
                raise TrainingStopped(
                    f"the last {empty} batches held no row to train on (train.limits.patience); `evolve train plan` "
                    "tells which tasks are too easy or too hard; more rollouts, or another train.filter, keep more"
                )
            for each in made:
                self.rollout_buffer.put(each)
            number += 1

    async def _batch(self, number: int) -> list[Made]:
        """Return the samples of a batch, and note what came of it."""
        source, methods = self._source, self._source.methods
        expected = source.expected()
        settings = draw(source.worlds, source.plan, number, methods.curriculum, expected)
        self._replies.clear()
        began = time.perf_counter()
        groups = await all_of(self._group(each, number) for each in settings)
        rollouts = [rollout for group in groups for rollout in group]
        written = sum(link.trajectory.usage.completion_tokens for rollout in rollouts for link in rollout.links)
        speed = tokens_per_s(written, time.perf_counter() - began)
        require_graded(rollouts, number)
        batch = prepared(episodes_of(rollouts, expected), self._replies.get_reply)
        chosen = methods.filter.keep(batch.episodes)
        rows, advantages = batch.advantages(methods.advantages(batch.episodes), chosen)
        figures = rollout_figures(rollouts) | speed | batch.figures | {"kept": float(chosen.sum())}
        done = outcomes(link.trajectory for rollout in rollouts for link in rollout.links)
        self._notes.put(Note(figures, done))
        made = source.samples(rows, advantages)
        return [Made(sample, row.trajectory_id, number) for sample, row in zip(made, rows, strict=True)]

    async def _group(self, setting: ChainSpec, number: int) -> tuple[Rollout, ...]:
        sampling = self._source.plan.sampling
        while True:
            version = self.rollout_buffer.version
            asked = WatchedPolicy(_Pinned(self._speak(version)))
            policy = CachedPolicy(asked, self._replies, scope=f"{sampling.seed}/{number}")
            try:
                return await roll([setting], policy, self._source.acting, sampling, number)
            except _AgedOut as gone:
                if version == self.rollout_buffer.version:
                    raise PolicyUnavailable(
                        f"the server no longer has the newest version ({gone}); it was started again: so must be this"
                    ) from None
                self.restarts += 1


class _AgedOut(Exception):
    """The version of a group was unloaded. No `PolicyError`: that would end an episode, and this begins it again."""


class _Pinned(WrappedPolicy):
    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        try:
            return await super().generate(messages, params)
        except UnknownGeneration as gone:
            raise _AgedOut(str(gone)) from gone


class _Replies:
    """The replies of one batch, and when the last of all came in."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self._kept: dict[str, dict[str, Any]] = {}

    async def put_reply(self, key: str, reply: dict[str, Any]) -> None:
        self.last = time.monotonic()
        self._kept[key] = reply

    def get_reply(self, key: str) -> dict[str, Any] | None:
        return self._kept.get(key)

    def clear(self) -> None:
        self._kept.clear()


def summed(notes: Sequence[Note]) -> Mapping[str, Sequence[int]]:
    """Return the outcomes of several batches together: task -> (successes, attempts)."""
    found: dict[str, tuple[int, int]] = {}
    for task, (successes, attempts) in (item for note in notes for item in note.outcomes.items()):
        before = found.get(task, (0, 0))
        found[task] = (before[0] + successes, before[1] + attempts)
    return found
