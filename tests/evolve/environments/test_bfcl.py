"""BFCL multi-turn: our grader agrees with the benchmark's, and model text is never evaluated."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import evolve.environments.bfcl.world as world_module
from evolve.environments.bfcl.data import VARIANTS, NotInstalled, entries, installed
from evolve.environments.bfcl.environment import SIZES, Bfcl, BfclConfig, entry_of
from evolve.environments.bfcl.world import BfclWorld
from evolve.protocols import Action
from memory.errors import BadInput, NotFound
from memory.records import Outcome, Task, ToolCall

pytestmark = pytest.mark.skipif(
    not installed(), reason="bfcl-eval is not installed (pip install --no-deps bfcl-eval mpmath)"
)


def base() -> list[Task]:
    return [task for task in Bfcl().every_task() if task.metadata["variant"] == "base"]


def play(task: Task, actions: Sequence[Action]) -> tuple[Outcome, int]:
    """Return the outcome and how many steps showed an error."""

    async def run() -> tuple[Outcome, int]:
        episode, errors = Bfcl().start(task), 0
        for action in actions:
            result = await episode.step(action)
            errors += result.error is not None
            if result.done:
                break
        return await episode.grade(), errors

    return asyncio.run(run())


def call(name: str, /, **arguments: Any) -> Action:
    return Action(tool_calls=(ToolCall(id="1", name=name, arguments=arguments),))


def test_gold_is_valid_in_all_800_tasks() -> None:
    tasks = Bfcl().every_task()
    played = [play(task, Bfcl().gold(task)) for task in tasks]
    assert len(tasks) == 800
    assert [task.id for task, (outcome, _) in zip(tasks, played, strict=True) if not outcome.success] == []
    assert sum(errors for _, errors in played) == 0


def test_stepwise_gold_last_call_dropped_and_nothing_done() -> None:
    tasks, right, dropped, idle = base(), 0, 0, 0
    for task in tasks:
        actions = list(Bfcl().gold(task))
        last = max(index for index, action in enumerate(actions) if action.tool_calls)
        right += play(task, actions)[0].success
        dropped += play(task, actions[:last] + actions[last + 1 :])[0].success
        idle += play(task, [action for action in actions if not action.tool_calls])[0].success
    assert (len(tasks), right, dropped, idle) == (200, 200, 0, 0)


def test_any_dropped_or_extra_write_fails_in_every_base_task() -> None:
    environment, writes = Bfcl(), 0
    for task in base():
        actions = list(environment.gold(task))
        changing = list(environment.state_changing(task))
        for index in changing:
            assert not play(task, actions[:index] + actions[index + 1 :])[0].success, (task.id, index)
        writes += len(changing)
        calls = [index for index, action in enumerate(actions) if action.tool_calls]
        place = (changing or calls)[-1]
        extra = [*actions[:place], environment.extra_write(task), *actions[place:]]
        assert not play(task, extra)[0].success, task.id
    assert writes == 569


def test_the_official_checker_agrees() -> None:
    """The benchmark's own checker, run on the benchmark's own text only, gives the same verdicts."""
    official: Any = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")

    def verdict(entry: Any, turns: list[list[list[str]]], name: str) -> bool:
        data = {"id": entry.id, "initial_config": entry.initial_config, "involved_classes": list(entry.classes)}
        gold = [list(turn) for turn in entry.gold]
        return bool(official.multi_turn_checker(turns, gold, data, "multi_turn_base", name)["valid"])

    for task in Bfcl().every_task():
        entry = entry_of(task)
        whole = [[[source] for source in turn] for turn in entry.gold]
        last = max(index for index, turn in enumerate(whole) if turn)
        short = [turn[:-1] if index == last else turn for index, turn in enumerate(whole)]
        assert verdict(entry, whole, "whole"), entry.id
        world = BfclWorld(entry)
        actions = [
            action
            for turn in short
            for action in [*(Action(tool_calls=(world.parse(step[0]),)) for step in turn), Action(text="Done.")]
        ]
        assert verdict(entry, short, "short") == play(task, actions)[0].success, entry.id


def test_split_by_scenario_number() -> None:
    environment = Bfcl(BfclConfig(variants=VARIANTS))
    seen = dict[int, str]()
    for split, size in SIZES.items():
        tasks = environment.tasks(split)
        assert len({task.metadata["number"] for task in tasks}) == size
        assert len(tasks) == size * (3 if split == "test_challenge" else 4)
        for task in tasks:
            assert seen.setdefault(task.metadata["number"], split) == split
    assert len(seen) == 200
    with pytest.raises(BadInput, match="has no split 'exam'; it has train, dev"):
        environment.tasks("exam")
    with pytest.raises(NotFound):
        environment.start(Task(id="x", instruction="x"))


@pytest.mark.parametrize(
    "source",
    [
        "__import__('os').system('true')",
        "cd(folder=__import__('os').getcwd())",
        "cd(folder=[x for x in 'ab'])",
        "self._load_scenario({})",
        "_load_scenario({})",
        "cd(folder=cd(folder='a'))",
        "cd(*['a'])",
        "cd(**{'folder': 'a'})",
        "cd(folder='a'); cd(folder='b')",
        "cd(nofolder='a')",
        "lambda: cd('a')",
        "cd",
        "",
    ],
)
def test_only_plain_calls_are_read(source: str) -> None:
    with pytest.raises(BadInput, match="cannot read the call"):
        BfclWorld(entries("base")[0]).parse(source)


def test_no_eval_in_the_adapter() -> None:
    folder = Path(world_module.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]
    assert sources
    for source in sources:
        code = source.replace('mode="eval"', "").replace("literal_eval(", "").replace("bfcl_eval", "")
        assert "eval(" not in code
        assert "exec(" not in code
        assert "multi_turn_checker(" not in code
        assert "execute_multi_turn_func_call" not in code


def test_worlds_share_nothing() -> None:
    entry = entries("base")[0]
    one, two = BfclWorld(entry), BfclWorld(entry)
    before = two.state()
    one.call("touch", {"file_name": "new"})
    assert one.state() != before
    assert two.state() == before == BfclWorld(entry).state()


def test_arguments_are_not_shared_with_the_world() -> None:
    world = BfclWorld(entries("base")[90])
    arguments = {"unlock": False, "door": ["driver", "passenger"]}
    world.call("lockDoors", arguments)
    assert arguments == {"unlock": False, "door": ["driver", "passenger"]}


async def test_missing_functions_arrive_later() -> None:
    task = next(task for task in Bfcl().every_task() if task.id == "multi_turn_miss_func_3")
    episode = Bfcl().start(task)
    result = await episode.step(call("find", path=".", name="test"))
    assert result.error == "find is not available now"
    told = await episode.step(Action(text="I cannot search yet."))
    assert told.observation == "From now on you can also use: find, ls."
    assert (await episode.step(call("find", path=".", name="test"))).error is None
    assert (await episode.step(call("mv", source="a", destination="b"))).error == "mv is not available now"


async def test_errors_of_the_systems_are_shown() -> None:
    episode = Bfcl().start(base()[0])
    result = await episode.step(call("cd", folder="nowhere"))
    assert result.error
    assert result.error in result.observation
    result = await episode.step(call("cd", wrong=1))
    assert result.observation.startswith("Error during execution: ")


def test_a_calculator_cannot_hang_the_host() -> None:
    entry = next(entry for entry in entries("base") if "MathAPI" in entry.classes)
    world, started = BfclWorld(entry), time.monotonic()
    for name, arguments in [
        ("power", {"exponent": 10**8, "base": 10**8}),
        ("power", {"base": 10**400, "exponent": 2}),
        ("square_root", {"precision": 10**8, "number": 2}),
        ("multiply", {"a": "x", "b": 10**9}),
        ("logarithm", {"value": 2, "base": 10, "precision": 10**8}),
    ]:
        assert world.call(name, arguments)[1] is not None, name
    assert world.call("power", {"base": 2, "exponent": 10}) == ('{"result": 1024}', None)
    assert time.monotonic() - started < 300, "any of these would take hours"


def test_tool_schemas_are_json_schema() -> None:
    environment = Bfcl()
    assert len({spec.name for spec in environment.tools}) == 128
    types = {
        schema["type"]
        for spec in environment.tools
        for schema in [spec.parameters, *spec.parameters["properties"].values()]
    }
    assert types <= {"object", "array", "string", "number", "integer", "boolean"}
    offered = {spec.name for spec in environment.tools_for(base()[0])}
    assert "mv" in offered
    assert "cp" not in offered


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    entries.cache_clear()
    with pytest.raises(NotInstalled, match="pip install --no-deps bfcl-eval"):
        entries("base")
