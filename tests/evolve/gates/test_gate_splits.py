"""Which tasks admit knowledge: their order, the slices that may not fall, and what may not have two roles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.gates.splits import select_tasks, slices, splits_there, stratified
from memory.errors import BadInput
from memory.records import Task
from tests.evolve.toy_doors import Doors


def task(name: str, scenario: str = "", **metadata: Any) -> Task:
    return Task(id=name, instruction="", scenario=scenario, metadata=metadata)


class Splits(Doors):
    """A world with the splits that it is given."""

    def __init__(self, **splits: Sequence[Task]) -> None:
        super().__init__()
        self.splits = splits

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise BadInput(f"no split {split!r}")
        return self.splits[split]


def config(root: Path, **sections: Any) -> Config:
    return Config.model_validate({"root": root, **sections})


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
def test_as_many_shared_scenarios_as_fit_are_named(count: int, tmp_path: Path) -> None:
    shared = [task(f"d{at}", f"s{at}") for at in range(count)]
    world = Splits(dev=[task("own", "own"), *shared])
    stream = [task("w", "mine"), *(each.model_copy(update={"id": f"w{each.id}"}) for each in shared)]
    settings = config(tmp_path, run={"eval_splits": []})
    if not count:
        assert [each.id for each in select_tasks(settings, world, stream)] == ["own"]
        return
    with pytest.raises(BadInput) as refused:
        select_tasks(settings, world, stream)
    said = str(refused.value)
    named = ", ".join(repr(f"s{at}") for at in range(min(3, count)))
    more = f" and {count - 3} more" if count > 3 else ""
    assert said.startswith(f"run.dev_split 'dev' shares scenario {named}{more} with the stream; expected")


def test_a_report_split_has_a_role_of_its_own_where_it_is_there(tmp_path: Path) -> None:
    settings = config(tmp_path, run={"eval_splits": ["test_normal", "nowhere"]})
    world = Splits(dev=[task("d", "a")], test_normal=[task("t", "b")])
    assert [each.id for each in select_tasks(settings, world, [task("w", "c")])] == ["d"]
    assert list(splits_there(settings, world, ["dev", "nowhere"])) == ["dev"]
    world = Splits(dev=[task("d", "a")], test_normal=[task("t", "a")])
    with pytest.raises(BadInput, match=r"run\.eval_splits 'test_normal'"):
        select_tasks(settings, world, [task("w", "c")])
    same = Splits(dev=[task("d")])
    with pytest.raises(BadInput, match="scenario 'd'"):
        select_tasks(settings, same, [task("d")])


def test_as_many_tasks_are_selected_as_are_asked_for(tmp_path: Path) -> None:
    world = Splits(dev=[task(f"d{at}", family=f"f{at % 3}") for at in range(9)])
    for count in (1, 3, 9, 20):
        settings = config(tmp_path, run={"eval_splits": []}, gate={"held_out": {"tasks": count}})
        found = select_tasks(settings, world, ())
        assert len(found) == min(9, count)
        assert found == stratified(world.splits["dev"], settings.run.seed)[:count]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_prefix_holds_each_stratum_in_proportion(seed: int) -> None:
    tasks = [task(f"a{at}", f"s{at}", family="a") for at in range(6)]
    tasks += [task(f"b{at}", "b") for at in range(3)] + [task("c")]
    ordered = stratified(tasks, seed)
    assert sorted(each.id for each in ordered) == sorted(each.id for each in tasks)
    for n in range(len(tasks) + 1):
        for name, size in (("a", 6), ("b", 3), ("c", 1)):
            count = sum(each.id.startswith(name) for each in ordered[:n])
            assert abs(count - n * size / 10) <= 1
    for name in "ab":
        own = [each.id for each in ordered if each.id.startswith(name)]
        assert own == sorted(own)


def test_which_of_equal_strata_comes_first_is_drawn() -> None:
    tasks = [task("a", family="a"), task("b", family="b")]
    assert {stratified(tasks, seed)[0].id for seed in range(40)} == {"a", "b"}


def test_protected_slices_are_tasks_that_agree_in_a_key(tmp_path: Path) -> None:
    tasks = [task("a", level=1), task("b", level=2), task("c", level=1), task("d")]
    assert slices(config(tmp_path), tasks) == {}
    found = slices(config(tmp_path, gate={"held_out": {"slices": "level"}}), tasks)
    assert found == {"level=1": ("a", "c"), "level=2": ("b",)}
    with pytest.raises(ConfigError, match=r"there are level$"):
        slices(config(tmp_path, gate={"held_out": {"slices": "nothing"}}), tasks)
    with pytest.raises(ConfigError, match=r"there are no keys$"):
        slices(config(tmp_path, gate={"held_out": {"slices": "nothing"}}), tasks[3:])
