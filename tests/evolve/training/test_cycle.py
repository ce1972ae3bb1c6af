"""`evolve cycle`: rounds of run, training, gate and promotion; stopped anywhere, it goes on and does nothing twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evolve.config.file import changed, load_config
from evolve.config.training import recipe_settings
from evolve.environments.office.environment import Office
from evolve.environments.office.episode import OfficeEpisode
from evolve.errors import ConfigError, EnvironmentFailure
from evolve.generations import workspace_registry as generations
from evolve.loop.assembly import open_store
from evolve.loop.runs import DONE
from evolve.training import ledger, resumption
from evolve.training.cycle import Round, _trained, cycle, read
from memory.errors import BadInput
from memory.records import Task
from policies.rl.trainer import TrainingStopped
from tests.evolve.command import evolve_json, invoke

pytestmark = pytest.mark.slow
SETTINGS = """\
[run]
batch_size = 4
concurrency = 16

[policy]
name = "pocket"
max_tokens = 64

[environment]
name = "office"
deployment = 600
max_steps = 6

[memory]
index = "exact"

[controls]
no_memory = 0

[gate]
names = ["default"]

[gate.held_out]
tasks = 4

[train]
rank = 4
"""


class Killed(Exception):
    """The process ends here."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    return tmp_path


def test_a_cycle_stopped_after_each_step_goes_on_and_does_nothing_twice(workspace: Path) -> None:
    config = load_config(workspace / "evolve.toml")
    steps: list[Round] = []

    def kill(latest: Round) -> None:
        steps.append(latest)
        raise Killed

    for _ in range(12):
        try:
            done = cycle(config, 4, 2, kill)
        except Killed:
            continue
        break
    else:
        pytest.fail("the cycle never came to its end")
    assert [each.number for each in done.rounds] == [0, 1]
    assert all(each.live and each.run_id for each in done.rounds)
    assert len(steps) <= 8
    with open_store(config, len, read_only=True) as store:
        runs = [data for data in store.runs() if data["mode"] == "online"]
        assert [data["status"] for data in runs] == [DONE, DONE]
        done_tasks = [each.task.id for data in runs for each in store.trajectories(run_id=data["run_id"], arm="main")]
    assert len(done_tasks) == len(set(done_tasks)) == 8, "each round does tasks of its own"
    with generations.open_registry(config.policy, config.workspace, read_only=True) as registry:
        published = [each for each in registry.generations() if each.adapter is not None]
        measured = [change for change in registry.history() if change.type == "measured"]
    assert len(published) == len(measured) == sum(bool(each.candidate) for each in done.rounds)
    assert read(config) == done


def test_a_cycle_by_rollouts_samples_anew_in_each_round(workspace: Path) -> None:
    small = {"train.iterations": 1, "train.chains": 1, "train.rollouts": 2, "train.filter": "everything"}
    small |= {"environment.max_steps": 2, "gate.held_out.tasks": 1, "train.echo": 0.1}
    config = changed(load_config(workspace / "evolve.toml"), recipe_settings("grpo") | small)

    def kill(latest: Round) -> None:
        raise Killed

    with pytest.raises(Killed):
        cycle(config, 2, 2, kill, recipe="grpo")
    with pytest.raises(BadInput, match="round 1 was begun with recipe grpo, got sft"):
        cycle(config, 2, 2)
    done = cycle(config, 2, 2, recipe="grpo")
    assert [each.recipe for each in done.rounds] == ["grpo", "grpo"]
    assert len({each.candidate for each in done.rounds if each.candidate}) == 2
    begun = [resumption.begun(each) for each in (config.workspace / generations.FOLDER / ledger.FOLDER).glob("*")]
    assert {each.recipe for each in begun if each} == {"grpo"}
    assert len({each.config["run"]["seed"] for each in begun if each}) == 2


class Gone(Office):
    """An office whose server is gone."""

    def start(self, task: Task, seed: int = 0) -> OfficeEpisode:
        raise EnvironmentFailure("the server is gone")


def test_a_round_ends_where_nothing_can_be_published_and_not_where_its_world_broke(workspace: Path) -> None:
    small = {"train.iterations": 1, "train.chains": 1, "train.rollouts": 2, "gate.held_out.tasks": 1}
    config = changed(load_config(workspace / "evolve.toml"), recipe_settings("grpo") | small)
    with open_store(config, len):
        pass
    assert "holds no successful train episodes" in _trained(config, Round(number=0, every=2), ())["reason"]
    gone = changed(config, {"environment.name": f"{__name__}:Gone"})
    with pytest.raises(TrainingStopped, match="the server is gone"):
        _trained(gone, Round(number=0, every=2, recipe="grpo"), ())


def test_the_command_prints_the_rounds_and_says_what_does_not_fit(workspace: Path) -> None:
    rows = evolve_json(workspace, "cycle", "--every", "4", "--rounds", "1")
    assert [row["number"] for row in rows] == [0]
    assert rows[0]["live"]
    other = invoke(workspace, "cycle", "--every", "5", "--rounds", "1", "--json")
    assert "rounds of 4 tasks, got 5" in json.loads(other.stdout)["error"]["message"]
    with pytest.raises(BadInput, match="has 72 tasks, and 3 rounds of 30 need 90"):
        cycle(load_config(workspace / "evolve.toml"), 30, 3)


def test_a_cycle_is_done_by_one_process(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="a cycle is done by one process, got 2"):
        cycle(load_config(workspace / "evolve.toml"), 4, 1)
