"""Rollouts of a training by workers of a Ray cluster (`run.executor = "ray"`), which ask this process for each reply.

R1  a training there is the one of this process: the same episodes, rewards and weights
R2  a worker that dies or hangs is an episode done again, with the replies that it was given
R3  what breaks in a world or in the policy is raised as it is here
R4  a group that is cut off leaves nothing behind; a relay that is gone ends the training with a sentence
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchmarks.ray_cluster import cluster, workers
from evolve.config.file import find_modules_of, load_config
from evolve.config.model import Config
from evolve.episode.rollout import Attempt, rollout
from evolve.errors import ConfigError, UserCodeError, WorkerLost
from evolve.loop.assembly import make_environment
from evolve.loop.executors import ray_worlds
from evolve.training import ledger
from evolve.training.rollout_store import read
from evolve.training.training_session import train
from memory.records import Trajectory
from policies.errors import PolicyRefused
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.training.test_loop import ACTING

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

SETTINGS = """\
[policy]
name = "pocket"
max_tokens = 60

[environment]
name = "office"
deployment = 600
max_steps = 3

[memory]
index = "exact"

[train]
rank = 4
iterations = 2
chains = 2
length = 2
rollouts = 2
learning_rate = 1e-3
filter = "everything"
advantages = "tests.evolve.training.served_office:more"
evaluate_every = 2
"""
WORLD = '''
from evolve.environments.office.environment import Office


class Closed(Office):
    """An office that is shut."""

    def start(self, task, seed=0):
        raise KeyError("no such door")
'''


@pytest.fixture(scope="module", autouse=True)
def two_nodes() -> Iterator[None]:
    with cluster(2):
        yield


def config_of(folder: Path, executor: str = "ray", **more: Any) -> Config:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evolve.toml").write_text(SETTINGS)
    return load_config(folder / "evolve.toml", {"run": {"executor": executor}, **more})


def came_to(config: Config) -> tuple[list[Any], dict[str, Any]]:
    """Return what a training came to: its episodes with their turns and rewards, and the weights."""
    trained = train(config, "sage")
    varying = {"turns": {"__all__": {"version": True, "steps": {"__all__": {"seconds"}}}}}
    rollouts = [each.model_dump(exclude=varying) for each in read(trained.folder)]
    weights = load_file(trained.folder / "adapter" / "adapter_model.safetensors")
    return [*ledger.lines(trained.folder / ledger.HISTORY), *rollouts], weights


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], dict[str, Any]]:
    return came_to(config_of(tmp_path_factory.mktemp("here"), "local"))


def test_r1_a_training_by_workers_comes_to_the_same(here: tuple[list[Any], dict[str, Any]], tmp_path: Path) -> None:
    told, weights = came_to(config_of(tmp_path))
    assert told == here[0]
    assert any(value.any() for name, value in weights.items() if "lora_B" in name)
    for name, value in weights.items():  # who is answered beside whom changes the last bits of a log-probability
        np.testing.assert_allclose(value, here[1][name], atol=1e-5)


class Counting(ScriptedPolicy):
    """Says which of its replies this is, and waits until it may answer."""

    def __init__(self) -> None:
        super().__init__(lambda messages, params: f"```python\n{self.asked}\n```", name="counting", version="1")
        self.asked = 0
        self.may = asyncio.Event()
        self.cut = 0

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        self.asked += 1
        try:
            if self.asked > 1:
                await self.may.wait()
            return await super().generate(messages, params)
        except asyncio.CancelledError:
            self.cut += 1
            raise


async def done(policy: Policy, folder: Path, **more: Any) -> Trajectory:
    """Return an episode that a worker did."""
    config = config_of(folder, **more)
    find_modules_of(config)
    environment = make_environment(config)
    attempt = Attempt(id="a", task=environment.tasks("train")[0], seed=3)
    async with ray_worlds.opened(config.run.workers) as executor:
        executor.know(config, environment)
        return await rollout(environment, policy, attempt, replace(ACTING, executor=executor))


async def until(happened: Callable[[], bool]) -> None:
    while not happened():
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
async def test_r2_a_worker_that_dies_or_hangs_is_an_episode_done_again_with_the_same_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: signal.Signals
) -> None:
    monkeypatch.setattr("evolve.loop.executors.cluster.BEAT_SECONDS", 0.5)
    policy = Counting()
    doing = asyncio.create_task(done(policy, tmp_path, run={"workers": 1, "executor": "ray"}))
    await until(lambda: policy.asked == 2)
    for pid in workers(name="Worlds"):
        os.kill(pid, fault)
    policy.may.set()
    episode = await asyncio.wait_for(doing, 600)
    assert [step.action for step in episode.steps] == ["1", "2", "3"]
    assert policy.asked == 3


async def test_r3_what_breaks_is_raised_as_it_is_here(tmp_path: Path) -> None:
    def refused(messages: Sequence[Message], params: SamplingParams) -> str:
        raise PolicyRefused("the key is wrong")

    with pytest.raises(PolicyRefused, match="the key is wrong"):
        await done(ScriptedPolicy(refused, name="refusing", version="1"), tmp_path / "refused")

    def broken(messages: Sequence[Message], params: SamplingParams) -> str:
        raise LookupError(lambda: "cannot be sent")

    with pytest.raises(LookupError, match="function"):
        await done(ScriptedPolicy(broken, name="broken", version="1"), tmp_path / "broken")
    folder = tmp_path / "world"
    folder.mkdir()
    (folder / "closed.py").write_text(WORLD)
    with pytest.raises(UserCodeError, match=r"no such door.*closed.py:9"):
        await done(Counting(), folder, environment={"name": "closed:Closed", "max_steps": 3})


async def test_r4_an_episode_that_is_given_up_leaves_nothing_behind(tmp_path: Path) -> None:
    config, policy = config_of(tmp_path), Counting()
    environment = make_environment(config)
    attempt = Attempt(id="a", task=environment.tasks("train")[0], seed=3)
    async with ray_worlds.opened(None) as executor:
        executor.know(config, environment)
        acting = replace(ACTING, executor=executor)
        doing = asyncio.create_task(rollout(environment, policy, attempt, acting))
        await until(lambda: policy.asked == 2)
        doing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doing
        assert policy.cut == 1
        assert not executor.under_way
        policy.may.set()
        again = await rollout(environment, policy, attempt, acting)
        assert len(again.steps) == 3
        doing = asyncio.create_task(rollout(environment, Counting(), attempt, acting))
        await until(lambda: executor.under_way == 1)
        ray.kill(executor.relay)
        with pytest.raises(WorkerLost, match="the actor that model calls travel through is gone"):
            await doing


def test_r4_a_backend_that_does_its_own_episodes_is_refused(tmp_path: Path) -> None:
    policy = {"name": "served", "base_url": "http://127.0.0.1:9"}
    with pytest.raises(ConfigError, match=r"run\.executor = 'ray', and does its episodes beside the trainer"):
        train(config_of(tmp_path, policy=policy, train={"backend": "trl_async"}), "grpo")
