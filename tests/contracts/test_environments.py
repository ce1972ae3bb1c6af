"""One conformance suite over every environment: the packaged one (`evolve env check`), and what holds for ours alone.

A new environment that ships is found by its file, and made without options unless `MADE` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from langchain_core.tools import BaseTool, tool

from evolve.config.model import Config, EnvironmentSection
from evolve.environments.bfcl.data import installed
from evolve.environments.check import Subject, examine, play
from evolve.environments.formula import Formula, FormulaConfig
from evolve.environments.lifelong_db import LifelongDb, LifelongDbConfig
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.tools import Tools, ToolsEnvironment, Transcript
from evolve.loop.assembly import make_environment, shipped_environments
from evolve.protocols import Action, Environment, HasGold, StateDiff
from memory.records import Task, ToolCall

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
SPLITS = ("train", "dev", "test_normal", "test_challenge")
SAMPLE = 6
"""Tasks of each split that the generic tests use."""

NO_BFCL = pytest.mark.skipif(not installed(), reason="bfcl-eval is not installed (pip install --no-deps bfcl-eval)")


def _counter(task: Task) -> Sequence[BaseTool]:
    counted: list[int] = []

    @tool
    def add(number: int) -> int:
        """Add a number to the list."""
        counted.append(number)
        return sum(counted)

    @tool
    def show() -> list[int]:
        """Return the list."""
        return counted

    return [add, show]


async def _counted(task: Task, transcript: Transcript, tools: Tools) -> bool:
    return await tools["show"].ainvoke({}) == [1, task.metadata["last"]]


class Counter(ToolsEnvironment):
    """A small world out of LangChain tools that can solve its own tasks."""

    def __init__(self) -> None:
        tasks = [
            Task(id=f"c{n}", instruction=f"Add 1, then {n}.", scenario=f"c{n}", split="train", metadata={"last": n})
            for n in range(2, 6)
        ]
        super().__init__(_counter, _counted, tasks, name="counter")

    def gold(self, task: Task) -> Sequence[Action]:
        return [_call("add", number=1), _call("add", number=task.metadata["last"]), Action(text="Done.")]

    def state_changing(self, task: Task) -> Sequence[int]:
        return [0, 1]

    def extra_write(self, task: Task) -> Action:
        return _call("add", number=99)


def _call(name: str, /, **arguments: object) -> Action:
    return Action(tool_calls=(ToolCall(id="1", name=name, arguments=arguments),))


def _formula() -> Formula:
    files = {name: str(FIXTURES / f"formula_{name}.jsonl") for name in ("train", "validation")}
    return Formula(FormulaConfig(**files, dev=1))


def _lifelong_db() -> LifelongDb:
    return LifelongDb(LifelongDbConfig(data=str(FIXTURES / "lifelong_db.json"), test=2, dev=1))


MADE: dict[str, Callable[[], Environment]] = {
    "office": lambda: Office(OfficeConfig(deployment=7)),
    "tools": Counter,
    "formula": _formula,
    "lifelong_db": _lifelong_db,
}
ELSEWHERE = {"gym", "textworld"}
"""Environments around another package, whose own tests ask the packaged suite."""


def environments_under_test() -> list[object]:
    """Return every environment as a pytest parameter: a function that makes a fresh one."""
    return [
        pytest.param(MADE.get(name) or _by_default(name), id=name, marks=[NO_BFCL] if name == "bfcl" else [])
        for name in shipped_environments()
        if name not in ELSEWHERE
    ]


def _by_default(name: str) -> Callable[[], Environment]:
    return lambda: make_environment(Config(environment=EnvironmentSection(name=name)))


Maker = Callable[[], Environment]
every_environment = pytest.mark.parametrize("make", environments_under_test())


def sample(environment: Environment) -> tuple[Task, ...]:
    """Return some tasks of each split that there is."""
    return Subject(environment, environment, splits_of(environment), splits_of, SAMPLE).tasks


def gold_of(environment: Environment, task: Task) -> list[Action]:
    assert isinstance(environment, HasGold)
    return list(environment.gold(task))


def splits_of(environment: Environment) -> dict[str, tuple[Task, ...]]:
    names = SPLITS[:1] if isinstance(environment, ToolsEnvironment) else SPLITS
    return {split: tuple(environment.tasks(split)) for split in names}


OPTIONAL = ("canaries", "demonstration", "what is read of an episode")


@every_environment
async def test_the_packaged_suite_passes_and_skips_only_what_is_optional(make: Maker) -> None:
    found = await examine(make, splits_of, sample=SAMPLE)
    assert [each for each in found if each.result == "failed"] == []
    writes = set() if isinstance(make(), StateDiff) else {"a dropped write fails", "an extra write fails"}
    assert {each.check for each in found if each.result == "skipped"} <= {*OPTIONAL, *writes}


@every_environment
async def test_doing_nothing_earns_nothing(make: Maker) -> None:
    environment = make()
    for task in sample(environment):
        said = [action for action in gold_of(environment, task) if not acts(action)]
        for idle in ([], [Action(text="")], said):
            outcome = await play(environment, task, idle)
            assert (outcome.reward, outcome.success) == (0.0, False), task.id


def acts(action: Action) -> bool:
    """Return True for an action that does more than say that all is done."""
    return bool(action.tool_calls) or action.text not in ("", "Done.")


REACHES = {
    "code": [
        "import evolve.environments.office.solver as s\nprint(s.gold)",
        "import gc\nprint(gc.get_objects())",
        "print(apps.mail.__globals__)",
        "print([f for f in ().__class__.__base__.__subclasses__()])",
        "print(apps._desk)",
        "print(gold)",
        "print(open('/proc/self/maps').read())",
    ],
    "tools": ["gold", "grade", "_load_scenario", "__init__", "__class__", "_world", "instances"],
    "text": [],
}


@every_environment
async def test_the_agent_reaches_neither_generator_nor_gold(make: Maker) -> None:
    environment = make()
    task = sample(environment)[0]
    shown = task.model_dump_json() + environment.describe("full")
    actions = gold_of(environment, task)
    for index in environment.state_changing(task) if isinstance(environment, StateDiff) else ():
        written = actions[index].text or actions[index].tool_calls[0].model_dump_json()
        assert written not in shown
    for attempt in REACHES[environment.action_format]:
        episode = environment.start(task)
        action = _call(attempt) if environment.action_format == "tools" else Action(text=attempt)
        result = await episode.step(action)
        assert result.error is not None, attempt
        await episode.close()


MISTAKES = {
    "code": [Action(text="1 / 0"), Action(text="x = ("), Action(text="apps.mail.nothing()"), Action(text="\x00")],
    "tools": [_call("nothing"), _call(""), _call("add", wrong=1), _call("cd", folder=7), _call("mean", numbers="x")],
    "text": [],
}


@every_environment
async def test_a_mistake_is_an_observation_and_the_episode_goes_on(make: Maker) -> None:
    environment = make()
    task = sample(environment)[0]
    episode = environment.start(task)
    for action in MISTAKES[environment.action_format]:
        result = await episode.step(action)
        assert result.error
        assert result.error in result.observation
        assert not result.done
    for action in gold_of(environment, task):
        await episode.step(action)
    assert (await episode.grade()).reward == 1.0
    await episode.close()
