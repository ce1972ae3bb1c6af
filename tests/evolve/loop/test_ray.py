"""Episodes by workers of a Ray cluster: `run.executor = "ray"`. The cluster is one of this machine, with two nodes.

E1  a run there learns what it learns in this process, its gates' trials included
E2  a worker that dies or hangs is a job done again: the run ends the same, with its workspace on a server too, and no
    reply that was journalled is asked for twice; one that always hangs ends the run, one that waits does not hang
E3  a budget stops the run, which goes on in this process
E4  what workers cannot do is refused before the first episode; what breaks in a worker is said as it is here
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evolve as library
from benchmarks.ray_cluster import cluster, workers
from evolve.config.file import load_config
from evolve.episode.rollout import Attempt, RolloutConfig
from evolve.errors import WorkerLost
from evolve.loop.assembly import make_environment, make_policy, open_store
from evolve.loop.session import arun
from memory.records import Task, Usage, new_id
from policies.budget import Budget
from policies.errors import BudgetExceeded, PolicyUnavailable
from tests.evolve.command import complaint, evolve, evolve_json, invoke, settings
from tests.postgres import workspace_address

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

TASKS = 8
SEEKER = '''
from policies.scripted import ScriptedPolicy


def policy(section):
    """Search, then do something."""
    def said(messages, params):
        return "<search_experience>who may book</search_experience>" if len(messages) == 2 else "```python\\n1\\n```"

    return ScriptedPolicy(said, name="seeker", version="1")
'''
GATES = '\n[gate]\nnames = ["default"]\n'
RAY = "run.executor=ray"


@pytest.fixture(scope="module", autouse=True)
def two_nodes() -> Iterator[None]:
    with cluster(2):
        yield


@pytest.fixture(scope="module", autouse=True)
def one_name() -> Iterator[None]:
    """Give every run of these tests one id, from which those of episodes follow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evolve.loop.session.new_id", lambda: "01RAYRAYRAYRAYRAYRAYRAYRAY")
        yield


def came_to(folder: Path) -> list[Any]:
    """Return what a run came to: all records, the curve, and every episode without its times, by its id."""
    records = [
        (row["label"], row["content"], row["status"]) for row in evolve_json(folder, "playbook", "list", "--all")
    ]
    with open_store(load_config(folder / "evolve.toml"), read_only=True) as store:
        (run,) = store.runs()
        episodes = [
            (each.id, each.task.id, each.arm, each.outcome, [step.action for step in each.steps], each.usage.calls)
            for each in store.trajectories()
        ]
        replies = len(store.events(type="reply"))
    assert run["status"] == "done"
    return [records, evolve_json(folder, "report")["curve"], sorted(map(str, episodes)), replies]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = settings(tmp_path_factory.mktemp("here"), tasks=TASKS, more=GATES)
    evolve(folder, "run")
    return came_to(folder)


def test_e1_a_run_by_workers_comes_to_the_same(here: list[Any], tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=TASKS, more=GATES)
    evolve(folder, "run", "--executor", "ray")
    assert here[0]
    assert came_to(folder) == here


def test_e1_episodes_search_there_and_find_what_they_find_here(tmp_path: Path) -> None:
    told: dict[str, list[Any]] = {}
    for name in ("local", "ray"):
        folder = settings(tmp_path / name, tasks=4, more='\n[gate]\nnames = ["none"]\n')
        (folder / "seeker.py").write_text(SEEKER)
        evolve(folder, "playbook", "add", "Only managers may book a room.")
        chosen = ("policy.name=seeker:policy", "playbook.search_k=2", "environment.max_steps=2", f"run.executor={name}")
        evolve(folder, "run", *(word for each in chosen for word in ("--set", each)))
        told[name] = came_to(folder)
    assert told["ray"] == told["local"]
    with open_store(load_config(tmp_path / "ray" / "evolve.toml"), read_only=True) as store:
        found = {each.steps[0].observation for each in store.trajectories(arm="main")}
    assert len(found) == 1
    assert "Only managers may book a room." in found.pop()


def test_e1_a_policy_that_is_an_object_is_asked_here(here: list[Any], tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=TASKS, more=GATES)
    config = load_config(folder / "evolve.toml", {"run": {"executor": "ray"}})
    library.run(config, parts=library.Parts(policy=make_policy(config.policy, config.workspace)))
    assert came_to(folder) == here


async def test_e2_on_a_servers_workspace_workers_that_die_change_nothing(here: list[Any], tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=TASKS, more=GATES)
    file = folder / "evolve.toml"
    file.write_text(file.read_text().replace("[memory]\n", f'[memory]\ndatabase = "{workspace_address()}"\n'))
    config = load_config(file, {"run": {"executor": "ray"}})
    killed: list[int] = []

    async def kill() -> None:
        while len(killed) < 3:
            await asyncio.sleep(0.3)
            for pid in [pid for pid in workers() if pid not in killed][:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    killing = asyncio.create_task(kill())
    await arun(config)
    killing.cancel()
    assert killed
    assert came_to(folder) == here


async def test_e2_a_worker_that_hangs_changes_nothing(
    here: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("evolve.loop.executors.cluster.BEAT_SECONDS", 0.5)
    folder = settings(tmp_path, tasks=TASKS, more=GATES)
    config = load_config(folder / "evolve.toml", {"run": {"executor": "ray"}})
    running = asyncio.create_task(arun(config))
    with open_store(config) as store:
        while not store.events(type="reply", limit=1):
            await asyncio.sleep(0.01)
    os.kill(workers()[0], signal.SIGSTOP)
    await asyncio.wait_for(running, 600)
    assert "a worker has not answered for 16 s" in caplog.text
    assert came_to(folder) == here


class Stuck:
    """Does jobs that wait, and jobs that block its event loop for ever."""

    async def ready(self) -> None:
        """Return when it is there."""

    async def episode(self, packed: Any, blocks: bool, began: Path) -> int:
        """Note the process that began this job, and return it."""
        with began.open("a") as file:
            file.write(f"{os.getpid()}\n")
        while blocks:
            pass
        await asyncio.sleep(12)
        return os.getpid()


async def test_e2_a_worker_that_waits_does_not_hang_and_one_that_always_hangs_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evolve.loop.executors import cluster

    for name, value in {"BEAT_SECONDS": 1, "SILENT_BEATS": 8, "RETRIES": 1}.items():
        monkeypatch.setattr(cluster, name, value)
    attempt = Attempt(id="a", task=Task(id="t", instruction="Wait."), seed=0)
    async with cluster.placed(Stuck, (), 1, 1) as placed:
        waited = await placed.episode(attempt, False, tmp_path / "waited")
        assert (tmp_path / "waited").read_text().split() == [str(waited)]
        with pytest.raises(WorkerLost, match="task 't': its worker was lost 2 times"):
            await asyncio.wait_for(placed.episode(attempt, True, tmp_path / "blocked"), 120)
        assert len(set((tmp_path / "blocked").read_text().split())) == 2


def test_e3_a_budget_stops_it_and_it_goes_on_here(here: list[Any], tmp_path: Path) -> None:
    folder = settings(tmp_path, tasks=TASKS, more=f"{GATES}\n[budget]\ncalls = 30\n")
    assert "budget used up" in invoke(folder, "run", "--executor", "ray").output
    settings(folder, tasks=TASKS, more=GATES)
    evolve(folder, "resume")
    assert came_to(folder) == here


class Telling:
    """Stands for workers: does an episode as it is told, and an episode without a telling not at all."""

    def __init__(self) -> None:
        self.let = asyncio.Event()

    async def episode(self, attempt: Any, temperature: float) -> tuple[Any, str, Usage]:
        if attempt is None:
            raise PolicyUnavailable("down")
        await self.let.wait()
        process, calls = attempt
        return attempt, process, Usage(calls=calls, prompt_tokens=10 * calls)


def executor_of(workers: Telling, budget: Budget) -> Any:
    from evolve.loop.executors.ray import RayExecutor

    return RayExecutor(workers, budget)  # pyright: ignore[reportArgumentType]


async def test_e3_what_a_worker_asked_for_is_counted_once_in_whatever_order_it_tells() -> None:
    budget, workers = Budget(), Telling()
    executor = executor_of(workers, budget)
    workers.let.set()
    for told in [("first", 12), ("first", 10), ("second", 3), ("first", 13)]:
        assert await executor.episode(None, None, told, RolloutConfig(world="")) == told
    assert budget.spent == Usage(calls=16, prompt_tokens=160)


@pytest.mark.parametrize("calls", [None, 4])
async def test_e3_episodes_under_way_are_done_before_one_that_fails_or_comes_too_late_ends_the_others(
    calls: int | None,
) -> None:
    budget, workers = Budget(calls=calls, spent=Usage(calls=2)), Telling()
    executor = executor_of(workers, budget)
    under_way = [asyncio.create_task(executor.episode(None, None, (name, 3), RolloutConfig(world=""))) for name in "ab"]
    await asyncio.sleep(0)
    last = asyncio.create_task(executor.episode(None, None, None, RolloutConfig(world="")))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not last.done()
    workers.let.set()
    with pytest.raises(BudgetExceeded if calls else PolicyUnavailable):
        await last
    assert all(each.done() for each in under_way)
    assert budget.spent.calls == 8


def test_e4_what_workers_cannot_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = settings(tmp_path, tasks=1)
    config = load_config(folder / "evolve.toml", {"run": {"executor": "ray"}})
    with pytest.raises(library.ConfigError, match="the environment was given as an object"):
        library.run(config, parts=library.Parts(environment=make_environment(config)))
    searching = load_config(folder / "evolve.toml", {"run": {"executor": "ray"}, "playbook": {"search_k": 2}})
    with pytest.raises(library.ConfigError, match=r"playbook\.search_k = 2"):
        library.run(searching, parts=library.Parts(policy=make_policy(config.policy, config.workspace)))
    nodes = [{"NodeManagerAddress": address, "Alive": True} for address in ("10.0.0.1", "10.0.0.2")]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert "2 machines" in complaint(folder, "run", "--set", RAY, code=2)


def test_a_cluster_that_is_slow_to_start_its_workers_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evolve.loop.executors.cluster.START_SECONDS", 0)
    done = invoke(settings(tmp_path), "run", "--set", RAY, "--set", "run.tasks=2")
    assert done.exit_code == 0, done.output


def test_e4_a_cluster_without_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("START_SECONDS", "LATE_SECONDS"):
        monkeypatch.setattr(f"evolve.loop.executors.cluster.{name}", 1)
    busy = [ray.remote(num_cpus=1)(Idle).remote() for _ in range(2)]
    ray.get([actor.ready.remote() for actor in busy])
    assert "no processor free" in complaint(settings(tmp_path), "run", "--set", RAY, code=2)
    for actor in busy:
        ray.kill(actor)


class Idle:
    """Takes a processor of the cluster."""

    def ready(self) -> None:
        """Return when it has it."""


def test_e4_comparisons_act_in_one_process_whatever_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evolve.loop.session.new_id", new_id)
    folder = settings(tmp_path, tasks=2)
    other = "default playbook.reflector=none"
    asked = ("--limit", "2", "--report-tasks", "2", "--no-controls", "--set", RAY)
    assert "playbook.reflector=none" in evolve(folder, "compare", "default", other, *asked)


def test_e4_what_a_users_code_raises_in_a_worker_is_said_as_it_is_here(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from evolve.environments.office.worker import worker\n\n\n"
        "def policy(section):\n"
        "    made = worker(section)\n"
        "    async def generate(messages, params):\n"
        "        raise ZeroDivisionError('of my own')\n"
        "    made.generate = generate\n"
        "    return made\n"
    )
    folder = settings(tmp_path, tasks=2)
    asked = ("run", "--set", "policy.name=broken:policy")
    told, there = complaint(folder, *asked, code=1), complaint(folder, *asked, "--set", RAY, code=1)
    assert "of my own" in there
    assert "broken.py:7 in generate)" in there
    assert "broken.py:7 in generate)" in told
