"""Other worlds of the journal in a training: learned as they were said, drawn from in rollouts, or left alone.

P1  successes elsewhere are learned as they were said, those at home also without what was learned
P2  `train.replay = false` learns from the configured world alone
P3  rollouts are drawn from all worlds whose agent is told the same; which, is fixed when a training begins
P4  a world without chains of the asked length is none of them
P5  a world that is larger than the first one gets no larger share of a batch
P6  the tasks of a world are those of its tasks file, where it has one
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from evolve.config.file import changed, load_config
from evolve.config.model import Config
from evolve.config.training import recipe_settings
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.errors import RunMismatch
from evolve.loop.assembly import make_environment
from evolve.loop.session import run
from evolve.training import ledger
from evolve.training.loop import Plan, World, draw, elsewhere
from evolve.training.loop import offered as chains_of
from evolve.training.rollouts import Sampling
from evolve.training.training_session import Trained, offered, train, train_from_logs
from evolve.training.workspace_rollouts import WORLDS, has_chains
from tests.evolve.toy_doors import Doors
from tests.evolve.training.test_cli_train import SETTINGS

pytestmark = pytest.mark.slow
TOLD = f"{__name__}:Told"
ELSEWHERE = {"environment.deployment": 601, "memory.namespace": "older"}


class Told(Doors):
    """Doors whose agent is told something."""

    def describe(self, profile: str) -> str:
        return "Doors open to a word."


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A workspace that worked in another office before its own."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "evolve.toml").write_text(SETTINGS)
    config = load_config(folder / "evolve.toml")
    run(changed(config, {**ELSEWHERE, "run.tasks": 6}))
    run(changed(config, {"run.tasks": 6}))
    return config


def solved(config: Config) -> list[int]:
    """Return the deployments whose tasks were solved, once for each success."""
    return [each.task.metadata["deployment"] for each in offered(config).successes]


def sft(config: Config, **settings: object) -> Trained:
    return train_from_logs(changed(config, recipe_settings("sft") | settings), "sft")


def test_p1_p2_successes_elsewhere_are_learned_as_they_were(config: Config) -> None:
    both, own = solved(config), solved(changed(config, {"train.replay": False}))
    assert set(both) == {600, 601}
    assert own == [each for each in both if each == 600]
    elsewhere = len(both) - len(own)
    alone = sft(config, **{"train.replay": False})
    assert (alone.examples, sft(config).examples) == (2 * len(own), 2 * len(own) + elsewhere)
    dropped = {"train.sft.context": "dropped"}
    assert sft(config, **dropped).examples == len(own) + elsewhere
    assert sft(config, **{"train.sft.context": "kept"}).examples == len(both)


def test_p3_rollouts_are_drawn_from_all_worlds_that_are_told_the_same(config: Config) -> None:
    run(changed(config, {"environment.name": TOLD, "run.tasks": 2}))
    settings = recipe_settings("grpo") | {"train.filter": "everything", "train.chains": 8, "environment.max_steps": 2}
    settings |= {"train.echo": 0.1}
    done = train(changed(config, settings), "grpo")
    (line,) = ledger.lines(done.folder / ledger.HISTORY)
    assert {task.split("/")[0] for task in line["outcomes"]} == {"office-600", "office-601"}
    assert done.left_out == (f"{TOLD} in default",)
    worlds = json.loads((done.folder / WORLDS).read_text())
    assert worlds["drawn"] == ["office(deployment=601) in older"]
    alone = train(changed(config, settings | {"train.replay": False}), "grpo")
    (line,) = ledger.lines(alone.folder / ledger.HISTORY)
    assert {task.split("/")[0] for task in line["outcomes"]} == {"office-600"}
    ledger.write(done.folder / WORLDS, json.dumps(worlds | {"drawn": ["a world that was"]}))
    with pytest.raises(RunMismatch, match="draws tasks of a world that was, which cannot be opened"):
        train(changed(config, settings), "grpo")


def test_p4_a_world_without_chains_of_the_asked_length_is_left_out(config: Config) -> None:
    office = make_environment(config)
    assert has_chains(changed(config, {"train.length": 2}), config, office)
    assert not has_chains(changed(config, {"train.length": 99}), config, office)


def test_p5_a_large_world_gets_no_larger_share() -> None:
    small, large = World(Doors()), World(Office(OfficeConfig(deployment=600)))
    plan = Plan(iterations=1, chains=4, length=1, sampling=Sampling(rollouts=2))
    every = chains_of([small, large], plan, 0)
    assert Counter(type(each.environment) for each in every) == {Doors: 5, Office: 5}
    assert len(chains_of([large, small], plan, 0)) > 8, "all of the first one are offered"
    drawn = draw([small, large], plan.model_copy(update={"chains": 10}), 0)
    assert elsewhere([small, large], drawn) == {"elsewhere": 0.5}
    assert elsewhere([large], draw([large], plan, 0)) == {}


def test_p6_rollouts_are_drawn_from_the_tasks_file(tmp_path: Path) -> None:
    line = {"id": "mine", "instruction": "Open the red door.", "scenario": "red"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(line) + "\n")
    (tmp_path / "evolve.toml").write_text(SETTINGS.replace("deployment = 600\n", 'tasks_file = "tasks.jsonl"\n'))
    settings = {"environment.name": "tests.evolve.toy_doors:Doors", "train.filter": "everything", "train.echo": 0.1}
    own = changed(load_config(tmp_path / "evolve.toml"), recipe_settings("grpo") | settings)
    done = train(own, "grpo")
    (line,) = ledger.lines(done.folder / ledger.HISTORY)
    assert list(line["outcomes"]) == ["mine"]
    world = Doors()
    assert has_chains(own, own, world)
    assert not has_chains(changed(own, {"train.length": 2}), own, world), "the environment has longer ones itself"
    assert not has_chains(own, changed(own, {"run.split": "nosuch"}), world)
