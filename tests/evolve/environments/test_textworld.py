"""TextWorld's cooking games: made once from a seed, won by TextWorld's own commands, refusals told as errors.

A game takes seconds to make, so one is made for all of these tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from evolve.config.model import Config
from evolve.environments.check import SPLITS, examine, play
from evolve.environments.textworld import INSTALL, TextWorld, TextWorldConfig, TextWorldEpisode
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.errors import ConfigError
from evolve.loop.assembly import make_environment
from evolve.protocols import Action
from memory.errors import BadInput
from memory.records import Task
from playbooks.rules import RulesReflector
from policies.scripted import ScriptedPolicy

INSTALLED = all(find_spec(name) for name in ("textworld", "jericho", "tatsu"))
needs_textworld = pytest.mark.skipif(not INSTALLED, reason=f"textworld is not installed ({INSTALL})")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TextWorld:
    return TextWorld(TextWorldConfig(cache=str(tmp_path_factory.mktemp("games")), train=2, dev=1, test=1))


@pytest.mark.skipif(INSTALLED, reason="textworld is installed")
def test_without_its_packages_it_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"needs the package 'textworld': pip install 'evolve-agents\[textworld\]'"):
        make_environment(Config(environment={"name": "textworld"}))


@needs_textworld
def test_tasks_are_seeds_and_need_no_game(world: TextWorld) -> None:
    found = {
        split: [task.id for task in world.tasks(split)] for split in ("train", "dev", "test_normal", "test_challenge")
    }
    assert found == {
        "train": ["cooking-1", "cooking-2"],
        "dev": ["cooking-1000001"],
        "test_normal": ["cooking-2000001"],
        "test_challenge": [],
    }
    with pytest.raises(BadInput, match="textworld has no task 'x'"):
        world.gold(Task(id="x", instruction="x"))


@needs_textworld
async def test_the_packaged_checks_pass(world: TextWorld) -> None:
    found = await examine(
        lambda: TextWorld(world.config), lambda made: {split: tuple(made.tasks(split)) for split in SPLITS}, sample=1
    )
    assert [each for each in found if each.result == "failed"] == []
    assert {"gold earns 1.0", "doing nothing earns less", "mistakes are observations"} <= {
        each.check for each in found if each.result == "passed"
    }


@needs_textworld
async def test_gold_wins_what_is_idle_does_not_and_a_game_is_made_once(world: TextWorld) -> None:
    task = world.tasks("train")[0]
    gold = list(world.gold(task))
    made = {path: path.stat().st_mtime_ns for path in Path(world.config.cache).iterdir()}
    assert sorted(path.suffix for path in made) == [".json", ".z8"]
    assert (await play(world, task, gold)).reward == 1.0
    short = await play(world, task, gold[:-1])
    assert not short.success
    assert 0 < short.reward < 1
    assert (await play(world, task, [])).reward == 0.0
    odd = ("", "xyzzy\x00", "é" * 300, "\\boxed{open fridge}", "take apple \\Rightarrow", "save", "restore", "tw-print")
    assert (await play(world, task, [Action(text=text) for text in odd])).reward == 0.0
    assert not list(Path().glob("*.qzl"))
    assert {path: path.stat().st_mtime_ns for path in Path(world.config.cache).iterdir()} == made


@needs_textworld
async def test_games_side_by_side_say_what_they_say_alone(world: TextWorld) -> None:
    commands = ("examine cookbook", "open fridge", "inventory", "look")
    tasks = [*world.tasks("train"), world.tasks("test_normal")[0]]

    async def said(games: Sequence[TextWorldEpisode]) -> list[list[str]]:
        told = [[await game.opening()] for game in games]
        for command in commands:
            for game, lines in zip(games, told, strict=True):
                lines.append((await game.step(Action(text=command))).observation)
        for game in games:
            await game.close()
        return told

    alone = [(await said([world.start(task)]))[0] for task in tasks]
    assert await said([world.start(task) for task in tasks]) == alone
    assert len({lines[1] for lines in alone}) == len(tasks)


@needs_textworld
async def test_knowledge_is_recalled_by_the_first_room_too(world: TextWorld) -> None:
    task = world.tasks("train")[0]
    episode = world.start(task)
    assert world.first_scene(task) == await episode.opening()
    await episode.close()
    assert len({world.first_scene(each) for each in world.tasks("train")[:3]}) > 1


@needs_textworld
async def test_the_first_room_is_told_and_commands_where_they_are_wanted(world: TextWorld) -> None:
    task = world.tasks("train")[0]
    episode = world.start(task)
    assert (await episode.opening()).startswith("-= Kitchen =-")
    result = await episode.step(Action(text="> examine cookbook.\nThen I shall see."))
    assert "Recipe" in result.observation
    assert not {"Commands, one a reply:", "\n>"} & set(result.observation.splitlines())
    assert result.error is None
    await episode.close()
    helped = TextWorld(world.config.model_copy(update={"commands": True})).start(task)
    told = (await helped.opening()).splitlines()
    assert {"look", "inventory"} <= set(told[told.index("Commands, one a reply:") :])
    await helped.close()


@needs_textworld
async def test_reflector_rules_learns_from_a_refused_command(world: TextWorld) -> None:
    task = world.tasks("train")[0]
    take = next(action.text for action in world.gold(task) if action.text.startswith("take"))
    wrong = take.split(" from ")[0] + " from ceiling"
    attempt = Attempt(id="tr-1", task=task, seed=0)
    trajectory = await rollout(world, ScriptedPolicy([wrong, take]), attempt, RolloutConfig(world="W", max_steps=2))
    assert trajectory.steps[0].error
    assert trajectory.steps[1].error is None
    reflection = await RulesReflector().reflect(trajectory, ())
    assert f"Use `{take}`" in [insight.content for insight in reflection.insights]
