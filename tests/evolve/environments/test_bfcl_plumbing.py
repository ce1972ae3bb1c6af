"""The plumbing check: what a forgetful scripted policy needs is found, learned, recalled and used by the real loop."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from evolve.environments.bfcl import Bfcl
from evolve.environments.bfcl.data import installed
from evolve.loop.assembly import open_store
from evolve.loop.session import RunResult
from evolve.protocols import Action
from memory.records import Outcome, Task

pytestmark = pytest.mark.skipif(
    not installed(), reason="bfcl-eval is not installed (pip install --no-deps bfcl-eval mpmath)"
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "bfcl_plumbing.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bfcl_plumbing", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def passed(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, list[str]]:
    """Learn on the train split, then evaluate the held-out split with and without memory."""
    config = example.configured(tmp_path_factory.mktemp("plumbing"))
    example.learn(config)
    with open_store(config, read_only=True) as store:
        texts = [record.payload.text() for record in store.view(config.memory.namespace).records()]
    return example.examine(config), texts


def play(example: ModuleType, task: Task, rules: dict[str, frozenset[str]]) -> tuple[Outcome, list[str]]:
    """Play a task without the loop; return the outcome and the names of the calls made."""

    async def run() -> tuple[Outcome, list[str]]:
        episode, player = Bfcl().start(task), example.Player(task.id, rules).play()
        action: Action = next(player)
        called = list[str]()
        while True:
            result = await episode.step(action)
            called += [call.name for call in action.tool_calls]
            if result.done:
                return await episode.grade(), called
            action = player.send(result.observation)

    return asyncio.run(run())


def test_what_is_forgotten_is_found_by_trying(example: ModuleType) -> None:
    tasks = Bfcl().tasks("train")
    lost = {
        call.name
        for task in tasks
        for at, call in enumerate(call for turn in example.gold_calls(task.id) for call in turn)
        if at in example.forgotten(task.id)
    }
    assert {"lockDoors", "pressBrakePedal", "ticket_login", "message_login", "touch"} <= lost
    assert not {"startEngine", "get_stock_info", "ls", "logarithm"} & lost
    assert 50 <= sum(bool(example.forgotten(task.id)) for task in tasks) < len(tasks)


def test_a_rule_brings_back_a_forgotten_call_in_time(example: ModuleType) -> None:
    rules = {"startEngine": frozenset({"lockDoors", "pressBrakePedal"})}
    solved = 0
    for task in Bfcl().tasks("train"):
        names = [call.name for turn in example.gold_calls(task.id) for call in turn]
        outcome, called = play(example, task, {})
        assert outcome.success == (not example.forgotten(task.id))
        if "startEngine" in names and not outcome.success:
            with_rules, called = play(example, task, rules)
            solved += with_rules.success
            forgot = [names[at] for at in example.forgotten(task.id)]
            for name in {"lockDoors", "pressBrakePedal"} & set(forgot):
                assert called.index(name) < called.index("startEngine")
    assert solved >= 5


@pytest.mark.slow
def test_held_out_success_rises_through_the_loop(passed: tuple[RunResult, list[str]]) -> None:
    result, texts = passed
    main, control = result.evaluations
    assert (main.split, main.arm, control.arm) == ("test_normal", "main", "no_memory")
    assert len(main.passed) == len(control.passed) == 60
    assert sum(bool(won) for won in control.passed.values()) == 12
    assert sum(bool(won) for won in main.passed.values()) >= 24
    assert main.warnings == control.warnings == ()
    assert "startEngine: before it must come lockDoors" in texts
    assert "startEngine: before it must come pressBrakePedal" in texts


@pytest.mark.slow
def test_no_task_that_worked_without_memory_is_lost(passed: tuple[RunResult, list[str]]) -> None:
    main, control = passed[0].evaluations
    assert [task for task, won in control.passed.items() if won and not main.passed[task]] == []


@pytest.mark.slow
def test_without_the_structured_half_nothing_is_gained(example: ModuleType, tmp_path: Path) -> None:
    """The gain comes from cue and action of recalled bullets, not from the policy itself."""
    config = example.configured(tmp_path, tasks=24)
    example.learn(config)
    example.bullets = lambda config: lambda number: ("", "")
    main, control = example.examine(config).evaluations
    assert main.passed == control.passed
