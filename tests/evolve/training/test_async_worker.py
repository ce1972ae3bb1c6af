"""The rollout worker over an engine in this process: rows name their version, losses are counted, errors come out."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.random_adapters import random_adapter
from evolve.environments.office.environment import Office, OfficeConfig, OfficeEpisode
from evolve.episode.rollout import RolloutConfig
from evolve.errors import EnvironmentFailure
from evolve.training.async_worker import Buffer, Made, RolloutWorker, Source, summed
from evolve.training.curriculum import Curriculum
from evolve.training.loop import Plan, World, draw
from evolve.training.rollouts import Sampling
from evolve.training.workspace_rollouts import Methods
from memory.records import Task
from policies.errors import PolicyUnavailable
from policies.generations.engine import Sampled
from policies.generations.local_engine import LocalEngine
from policies.generations.token_policy import TokenPolicy
from policies.local.loading import load_encoder
from policies.local.local_policy import POCKET
from policies.protocols import SamplingParams
from policies.rl.advantages.grpo import grpo
from policies.rl.filters.everything import Everything
from policies.rl.filters.zero_variance import ZeroVariance
from policies.rl.protocols import Array
from policies.rl.rows import TrainRow
from policies.rl.tracker import BetaTracker
from policies.rl.trainer import TrainingStopped

pytestmark = pytest.mark.slow
PLAN = Plan(chains=1, length=1, sampling=Sampling(rollouts=2, skills=False, seed=4))
ACTING = RolloutConfig(world="", max_steps=2, temperature=1.0, max_tokens=16)
SOON_S = 600.0


@dataclass(frozen=True)
class Row:
    """A sample that keeps the row it is made of."""

    row: TrainRow
    advantage: Array

    @property
    def model_version(self) -> int:
        (version,) = {int(span.policy_version.removeprefix("v")) for span in self.row.spans}
        return version


def rows_with(rows: Sequence[TrainRow], advantages: Sequence[Array]) -> list[Row]:
    return [Row(row, own) for row, own in zip(rows, advantages, strict=True)]


class Losing(LocalEngine):
    """An engine that forgets a version once it has been asked `after` times."""

    after, asked = 1 << 30, 0

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        self.asked += 1
        if self.asked == self.after and version is not None:
            self.lost()
            await self.unload(version)
        return await super().sample(prompt, params, version)

    lost: Callable[[], None] = staticmethod(lambda: None)


class Broken(Office):
    """An office that never begins."""

    def start(self, task: Task, seed: int = 0) -> OfficeEpisode:
        raise EnvironmentFailure("the server is gone")


@pytest.fixture
def engine(tmp_path: Path) -> Losing:
    engine = Losing(POCKET, threads=1)
    for version in (1, 2):
        path = random_adapter(POCKET, tmp_path / str(version), version)
        asyncio.run(engine.load(f"v{version}", path))
    return engine


SOURCE = Source(
    worlds=[World(Office(OfficeConfig(deployment=600)))],
    plan=PLAN,
    methods=Methods(advantages=grpo, filter=Everything(), curriculum=Curriculum(), retrying=None),
    acting=ACTING,
    samples=rows_with,
    expected=BetaTracker,
)


@pytest.fixture
def worker_of(engine: Losing) -> Iterator[Callable[..., RolloutWorker]]:
    made: list[RolloutWorker] = []
    encoder = load_encoder(str(POCKET))

    def make(source: Source = SOURCE, first: int = 0) -> RolloutWorker:
        def speak(version: int) -> TokenPolicy:
            return TokenPolicy(engine, encoder, profile="compact", generation=f"v{version}")

        made.append(RolloutWorker(source, speak, Buffer(max_staleness=2), first))
        made[-1].update_model_version(1)
        return made[-1]

    yield make
    for each in made:
        each.stop()


def taken(worker: RolloutWorker, count: int) -> list[Row]:
    """Take as the trainer does: what has ended the worker is raised."""
    found: list[Row] = []
    deadline = time.monotonic() + SOON_S
    while len(found) < count:
        assert time.monotonic() < deadline
        try:
            sample = worker.rollout_buffer.get(timeout=0.2)
        except queue.Empty:
            worker.check_health(SOON_S)
            continue
        assert isinstance(sample, Row)
        found.append(sample)
    return found


def test_a_batch_is_compared_among_itself_and_each_row_names_the_version_that_sampled_it(
    worker_of: Callable[..., RolloutWorker],
) -> None:
    worker = worker_of()
    worker.start()
    first = taken(worker, 2)
    assert [row.model_version for row in first] == [1, 1]
    worker.update_model_version(2)
    second = {row.model_version for row in taken(worker, 2)}
    assert len(second) == 1, "a group has one version"
    assert [row.model_version for row in taken(worker, 2)] == [2, 2]
    assert len({row.row.group for row in first}) == 1
    assert all(len(row.row.sampling_logprobs) == len(row.row.completion_ids) > 0 for row in first)
    made = worker.rollout_buffer.trained(4)
    assert [each.batch for each in made] == [0, 0, 1, 1]
    assert len({each.episode for each in made}) == 4
    notes = worker.notes()
    assert notes[0].figures["episodes"] == notes[0].figures["kept"] == 2
    assert sum(attempts for _, attempts in summed(notes[:2]).values()) == 4
    worker.stop()
    assert "rollouts" not in {each.name for each in threading.enumerate()}


def test_a_worker_that_goes_on_draws_the_batches_that_were_not_trained_on(
    worker_of: Callable[..., RolloutWorker],
) -> None:
    worker = worker_of(first=3)
    worker.start()
    (setting,) = draw(SOURCE.worlds, PLAN, 3)
    assert {row.row.task_id for row in taken(worker, 2)} == {setting.chain.tasks[0].id}
    assert [each.batch for each in worker.rollout_buffer.trained(2)] == [3, 3]


def test_a_group_whose_version_is_unloaded_is_done_again_by_the_newest(
    worker_of: Callable[..., RolloutWorker], engine: Losing
) -> None:
    worker = worker_of()
    engine.after, engine.lost = 3, lambda: worker.update_model_version(2)  # two have begun: in the middle of an episode
    worker.start()
    assert [row.model_version for row in taken(worker, 2)] == [2, 2]
    assert worker.restarts == 1
    assert worker.notes()[0].figures["not_graded"] == 0


def test_a_server_that_has_lost_the_newest_version_ends_the_training(
    worker_of: Callable[..., RolloutWorker], engine: Losing
) -> None:
    worker = worker_of()
    engine.after = 3
    worker.start()
    with pytest.raises(PolicyUnavailable, match=r"no longer has the newest version .*v1"):
        taken(worker, 2)


def test_what_is_too_old_is_counted_and_left_out() -> None:
    def made(version: int) -> Made:
        name = TrainRow(
            trajectory_id=f"t{version}",
            prompt_ids=(1,),
            completion_ids=(2,),
            sampling_logprobs=(-1.0,),
            spans=({"start": 0, "stop": 1, "step": 0, "policy_version": f"v{version}"},),  # type: ignore[arg-type]
        )
        return Made(Row(name, np.zeros(1)), f"t{version}", 0)

    buffer = Buffer(max_staleness=2)
    for version in (1, 2, 3):
        buffer.put(made(version))
    buffer.version = 4
    assert [buffer.get().model_version for _ in range(2)] == [2, 3]
    assert buffer.stale == 1
    assert [each.episode for each in buffer.trained(2)] == ["t2", "t3"]
    with pytest.raises(queue.Empty):
        buffer.get(timeout=0.01)


def test_batches_without_a_row_stop_the_training(
    worker_of: Callable[..., RolloutWorker],
) -> None:
    alike = replace(SOURCE, methods=replace(SOURCE.methods, filter=ZeroVariance()), acting=replace(ACTING, max_steps=1))
    patience = PLAN.limits.model_copy(update={"patience": 2})
    alike = replace(alike, plan=PLAN.model_copy(update={"limits": patience}))
    worker = worker_of(alike)
    worker.start()
    with pytest.raises(TrainingStopped, match="last 2 batches held no row"):
        taken(worker, 1)


def test_a_world_that_is_broken_stops_the_training(worker_of: Callable[..., RolloutWorker]) -> None:
    worker = worker_of(replace(SOURCE, worlds=[World(Broken(OfficeConfig(deployment=600)))]))
    worker.start()
    with pytest.raises(TrainingStopped, match="the server is gone"):
        taken(worker, 1)


def test_a_worker_that_waits_for_a_reply_too_long_says_so(worker_of: Callable[..., RolloutWorker]) -> None:
    worker = worker_of()
    time.sleep(0.05)
    with pytest.raises(TrainingStopped, match="no reply for"):
        worker.check_health(0.01)
