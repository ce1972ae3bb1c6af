"""The worlds of `examples/worlds`: short, sound, and learnable without a model that reflects."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.foreign_worlds import WORLDS, live
from evolve.environments.check import examine
from evolve.protocols import Action, Environment
from memory.records import Task

LINES = 120
DRAWN = {"cellar": "opened_with", "bookkeeping": "table", "support_desk": "code"}


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_learned_in_a_world_helps_in_held_out_tasks(name: str) -> None:
    life = live(name, seed=0)
    assert life.applied
    assert life.with_memory - life.without >= 0.2
    assert not life.again.gained
    assert not life.again.lost


@pytest.mark.parametrize("name", WORLDS)
def test_nothing_is_learned_where_nobody_reflects(name: str) -> None:
    life = live(name, seed=0, reflector="none")
    assert (life.applied, life.memory.delta) == (0, 0)


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_fits_on_a_page_and_its_rules_are_drawn(root: Path, name: str) -> None:
    source = (root / "examples" / "worlds" / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= LINES
    worlds = [WORLDS[name].make(seed) for seed in range(20)]
    assert len({repr(getattr(world, DRAWN[name])) for world in worlds}) > 1
    assert all(worlds[0].tasks(split) == worlds[1].tasks(split) for split in ("train", "dev", "test_normal"))


async def test_the_database_can_only_be_read() -> None:
    world = WORLDS["bookkeeping"].make(0)
    episode = world.start(world.tasks("train")[0])
    for statement in (f"DELETE FROM {world.table}", "ATTACH 'x.db' AS x", "PRAGMA user_version = 3"):
        result = await episode.step(Action(text=statement))
        assert result.error, statement


@pytest.mark.parametrize("name", WORLDS)
async def test_a_world_keeps_the_promises_of_an_environment(name: str) -> None:
    def load(world: Environment) -> dict[str, tuple[Task, ...]]:
        return {split: tuple(world.tasks(split)) for split in ("train", "dev", "test_normal")}

    found = await examine(lambda: WORLDS[name].make(0), load)
    assert [each for each in found if each.result == "failed"] == []
