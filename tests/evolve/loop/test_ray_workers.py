"""Checks what a worker of a Ray cluster acts with, how it holds on to the workspace, and how a run joins a cluster.

W1  a worker with other code or another policy than the run's is refused, one that was begun anew too
W2  an episode whose worker lost the workspace is done again after a pause; in the end the run stops
W3  a worker opens the index, with its connections to the server, only where its episodes search
W4  a run that sees no process of another node joins the cluster by the command of `deploy/compose.yaml`, and learns
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ray_cluster import cluster, workers
from evolve.config.file import find_modules_of, load_config
from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.episode.rollout import Attempt, RolloutConfig
from evolve.errors import RunMismatch
from evolve.loop import role_policies
from evolve.loop.assembly import make_environment, make_policy
from evolve.loop.executors import ray_worlds
from evolve.loop.executors.cluster import placed
from evolve.loop.executors.ray import RayExecutor, Worker, acts_with
from memory.errors import JournalError
from memory.index_worker import IndexWorker
from memory.records import Usage
from policies.budget import Budget
from tests.evolve.command import evolve_json, settings
from tests.postgres import workspace_address
from tests.test_deploy import COMPOSE, manifest

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

OWN = '''
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import worker


class World(Office):
    """An office."""

    def __init__(self):
        super().__init__(OfficeConfig(deployment=3))


def policy(section):
    """The scripted worker."""
    return worker(section)
'''


@pytest.fixture(scope="module")
def one_node() -> Iterator[None]:
    with cluster(1):
        yield


def own_modules(folder: Path, name: str) -> tuple[Config, Path]:
    """Return settings whose world and policy are in a module of the user's, and that module."""
    folder = settings(folder, tasks=2)
    (module := folder / f"{name}.py").write_text(OWN)
    chosen = {"policy": {"name": f"{name}:policy"}, "environment": {"name": f"{name}:World"}}
    config = load_config(folder / "evolve.toml", chosen)
    find_modules_of(config)
    return config.model_copy(update={"root": config.root.resolve()}), module


async def arguments(config: Config) -> tuple[Config, str, dict[str, str]]:
    """Return what a worker of a run with these settings is made of."""
    async with role_policies.opened(config.policy, config.workspace, None, {}) as policies:
        return config, "run", acts_with(config, policies)


def attempt_of(config: Config) -> Attempt:
    return Attempt(id="a", task=load_tasks(config, make_environment(config), "train")[0], seed=0)


async def test_w1_a_worker_that_would_act_with_something_else_is_refused(tmp_path: Path) -> None:
    config, module = own_modules(tmp_path, "own_parts")
    config, run_id, expected = await arguments(config)
    await Worker(config, run_id, expected).ready()
    with pytest.raises(RunMismatch, match=f"policy '{expected['policy']}' \\(the run: 'older'\\)"):
        await Worker(config, run_id, {**expected, "policy": "older"}).ready()
    module.write_text(f"{OWN}\n# other grades\n")
    with pytest.raises(RunMismatch, match=f"code '.*' \\(the run: '{expected['code']}'\\)"):
        await Worker(config, run_id, expected).ready()


async def test_w1_a_worker_that_is_begun_anew_is_compared_too(tmp_path: Path, one_node: None) -> None:
    config, module = own_modules(tmp_path, "own_parts_there")
    async with placed(Worker, await arguments(config), 1, 1) as there:
        done, _, _ = await there.episode(attempt_of(config), 0.0)
        assert done.task.id == attempt_of(config).task.id
        module.write_text(f"{OWN}\n# other grades\n")
        os.kill(workers()[0], signal.SIGKILL)
        with pytest.raises(RunMismatch, match="would act with code"):
            await asyncio.wait_for(there.episode(attempt_of(config), 0.0), 60)


async def test_w1_a_world_with_other_code_is_refused(tmp_path: Path, one_node: None) -> None:
    config, module = own_modules(tmp_path, "own_world")
    environment, policy = make_environment(config), make_policy(config.policy)
    async with ray_worlds.opened(1) as executor:
        executor.know(config, environment)
        module.write_text(f"{OWN}\n# other grades\n")
        with pytest.raises(RunMismatch, match="would act with code"):
            await executor.episode(environment, policy, attempt_of(config), RolloutConfig(world=""))


class Losing:
    """Stands for workers that lose the workspace so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    async def episode(self, attempt: Any, temperature: float) -> tuple[Any, str, Usage]:
        self.left -= 1
        if self.left >= 0:
            raise JournalError("the server is gone")
        return attempt, "process", Usage(calls=1)


@pytest.mark.parametrize("times", [3, 4])
async def test_w2_an_episode_is_done_again_where_the_workspace_was_lost(
    times: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("evolve.loop.executors.ray.PAUSES", (0.0, 0.0, 0.0))
    executor: Any = RayExecutor(Losing(times), budget := Budget())  # pyright: ignore[reportArgumentType]
    if times == 3:
        assert await executor.episode(None, None, "done", RolloutConfig(world="")) == "done"
    else:
        with pytest.raises(JournalError, match="the server is gone"):
            await executor.episode(None, None, "done", RolloutConfig(world=""))
    assert budget.spent.calls == (1 if times == 3 else 0)
    assert caplog.text.count("an episode is done again") == 3


@pytest.mark.parametrize("search_k", [0, 2])
async def test_w3_a_worker_opens_the_index_where_its_episodes_search(tmp_path: Path, search_k: int) -> None:
    server = {"memory": {"database": workspace_address(vector=True), "index": "pgvector"}}
    config = load_config(settings(tmp_path, tasks=2) / "evolve.toml", {**server, "playbook": {"search_k": search_k}})
    worker = Worker(*await arguments(config))
    before = set(threading.enumerate())
    await worker.ready()
    assert [type(each) for each in set(threading.enumerate()) - before] == ([IndexWorker] if search_k else [])
    await worker._open.aclose()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.slow
def test_w4_a_run_that_sees_no_other_node_joins_the_cluster(tmp_path: Path, one_node: None) -> None:
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("`unshare` may make no namespace of processes here")
    (pod,) = manifest("RayCluster")["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert subprocess.run(pod["readinessProbe"]["exec"]["command"]).returncode == 0
    address = ray.get_runtime_context().gcs_address
    folder = settings(tmp_path, tasks=2)
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [*apart, "bash", "-c", COMPOSE["services"]["run"]["command"][2].replace("ray-head:6379", address)],
        cwd=folder,
        env={**os.environ, "PATH": paths, "RAY_ADDRESS": address, "EVOLVE_RUN__EXECUTOR": "ray"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert evolve_json(folder, "report")["status"] == "done"
