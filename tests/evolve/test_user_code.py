"""Errors in code of the user: they name its file and line, and end the run as stopped; broken contracts are refused."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evolve.config.model import PolicySection
from evolve.errors import UserCodeError
from evolve.integrations.agent import Agent
from evolve.loop.assembly import make_policy, open_store
from evolve.loop.report import find_record
from evolve.loop.session import Parts, resume, run
from evolve.protocols import Action, Demonstration, StepResult
from evolve.usercode import users
from memory.errors import EvolveError
from memory.records import DeltaOp, Outcome, Record, Reflection, Task, Trajectory
from policies.protocols import Message, Profile, SamplingParams, ToolSpec
from policies.scripted import ScriptedPolicy
from tests.evolve.command import finish, one_sentence, start
from tests.evolve.toy_doors import DoorEpisode, Doors, doors_config, doors_policy, replies

HERE = Path(__file__).name


class _Broken(DoorEpisode):
    """Breaks in one place."""

    def __init__(self, color: str, broken: dict[str, Callable[[], Any]]) -> None:
        super().__init__(color)
        self.broken = broken

    async def step(self, action: Action) -> StepResult:
        return self.broken["step"]() if "step" in self.broken else await super().step(action)

    async def grade(self) -> Outcome:
        return self.broken["grade"]() if "grade" in self.broken else await super().grade()


class BrokenDoors(Doors):
    """Doors with a bug in one place."""

    def __init__(self, **broken: Callable[[], Any]) -> None:
        super().__init__(4)
        self.broken = broken

    def start(self, task: Task, seed: int = 0) -> _Broken:
        if "start" in self.broken:
            self.broken["start"]()
        return _Broken(task.instruction.split()[2], self.broken)


def lost_table() -> None:
    sqlite3.connect(":memory:").execute("SELECT * FROM orders")


def stopped(folder: Path, parts: Parts, **sections: dict[str, object]) -> str:
    """Return why a run ended, which must be an error of ours, leave a stopped run, and say the same in its record."""
    config = doors_config(folder, **sections)
    with pytest.raises(EvolveError) as error:
        run(config, parts=parts)
    with open_store(config, read_only=True) as store:
        record = find_record(store, None)
    assert record.status == "stopped"
    assert str(error.value) in record.reason
    return str(error.value)


@pytest.mark.parametrize("where", ["start", "step", "grade"])
def test_a_database_error_of_the_users_world_is_the_users(where: str, tmp_path: Path) -> None:
    said = stopped(tmp_path, Parts(policy=doors_policy(), environment=BrokenDoors(**{where: lost_table})))
    assert f"{where}() of environment 'doors' raised OperationalError: no such table: orders" in said
    assert f"{HERE}:" in said
    assert "lost_table" in said
    assert "checkpoints.db" not in said
    assert "doctor" not in said


def raising(error: BaseException) -> Callable[[], Any]:
    def raised() -> None:
        raise error

    return raised


def nothing_found() -> Any:
    return next(iter([]))


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        (nothing_found, "raised StopIteration"),
        (raising(SystemExit(3)), "raised SystemExit: 3"),
        (raising(asyncio.CancelledError()), "raised CancelledError"),
    ],
)
def test_what_python_hides_or_ends_by_is_an_error_of_the_users_line(
    bug: Callable[[], Any], said: str, tmp_path: Path
) -> None:
    told = stopped(tmp_path, Parts(policy=doors_policy(), environment=BrokenDoors(step=bug)))
    assert f"step() of environment 'doors' {said}" in told
    assert f"{HERE}:" in told


async def test_a_task_that_was_cancelled_is_no_bug_of_the_code_it_ran() -> None:
    async def waiting() -> None:
        with users("step() of environment 'doors'"):
            await asyncio.sleep(3600)

    task = asyncio.create_task(waiting())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Optional(Doors):
    """Doors with every optional method that is called without an episode; one of them has a bug."""

    def __init__(self, method: str, answer: Callable[[], Any]) -> None:
        super().__init__(4)
        self.bugs = {method: answer}

    def _said(self, method: str, otherwise: Any) -> Any:
        return self.bugs[method]() if method in self.bugs else otherwise

    def demonstration(self) -> Demonstration:
        return self._said("demonstration", Demonstration(instruction="Open the oak door.", reply="```python\n1\n```"))

    def tools_for(self, task: Task) -> tuple[ToolSpec, ...]:
        return self._said("tools_for", ())

    def outside(self, episode: Trajectory) -> Sequence[str]:
        return self._said("outside", ())

    def canaries(self) -> Sequence[Task]:
        return self._said("canaries", ())

    def breaches(self, task: Task) -> Sequence[Sequence[Action]]:
        return ()


OPTIONAL = {
    "demonstration": "a Demonstration",
    "tools_for": "a list of ToolSpec",
    "outside": "a list of str",
    "canaries": "a list of Task",
}


@pytest.mark.parametrize("method", OPTIONAL)
@pytest.mark.parametrize("bug", [lost_table, lambda: "mine", lambda: [1]])
def test_a_bug_in_an_optional_method_is_the_users(method: str, bug: Callable[[], Any], tmp_path: Path) -> None:
    profile: Profile = "full" if method == "demonstration" else "compact"  # which is shown none
    policy = ScriptedPolicy(replies, name="doors", profile=profile, version="1")
    config = doors_config(tmp_path, gate={"names": ["static", "canary"]})
    with pytest.raises(UserCodeError) as error:
        run(config, parts=Parts(policy=policy, environment=Optional(method, bug)))
    wanted = "raised OperationalError" if bug is lost_table else f"; expected {OPTIONAL[method]}"
    assert f"{method}() of environment 'doors'" in str(error.value)
    assert wanted in str(error.value)
    assert f"{HERE}:" in str(error.value)


def test_after_the_mend_the_run_goes_on(tmp_path: Path) -> None:
    config = doors_config(tmp_path, run={"batch_size": 2})
    with pytest.raises(EvolveError):
        run(config, parts=Parts(policy=doors_policy(), environment=BrokenDoors(grade=lost_table)))
    done = resume(config, parts=Parts(policy=doors_policy(), environment=BrokenDoors()))
    assert done.status == "done"
    assert done.metrics is not None
    assert done.metrics.graded == 4


@pytest.mark.parametrize(
    ("where", "got", "said"),
    [
        ("grade", (True, 1.0), "(True, 1.0) (tuple); expected evolve.Outcome"),
        ("grade", Outcome(success=True, reward=85.0), "a reward from 0 to 1"),
        ("grade", None, "None (NoneType); expected evolve.Outcome"),
        ("step", "done", "'done' (str); expected evolve.StepResult"),
    ],
)
def test_what_an_episode_returns_is_checked(where: str, got: object, said: str, tmp_path: Path) -> None:
    environment = BrokenDoors(**{where: lambda: got})
    assert said in stopped(tmp_path, Parts(policy=doors_policy(), environment=environment))


class Blocking(DoorEpisode):
    """Its step is no coroutine."""

    def step(self, action: Action) -> StepResult:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        return StepResult(observation="ok", done=True)


class BlockingDoors(Doors):
    """Doors whose step is a plain function."""

    def start(self, task: Task, seed: int = 0) -> DoorEpisode:
        return Blocking(task.instruction.split()[2])


def test_a_step_that_is_no_coroutine_is_named(tmp_path: Path) -> None:
    said = stopped(tmp_path, Parts(policy=doors_policy(), environment=BlockingDoors()))
    assert "write it with `async def`" in said
    assert f"{HERE}:" in said


class Reader:
    """A reflector with a bug, or one that returns a text."""

    name = "mine"

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        return self.answer()


@pytest.mark.parametrize(
    ("answer", "said"), [(lost_table, "raised OperationalError"), (lambda: "a lesson", "'a lesson' (str)")]
)
def test_a_bug_in_a_reflector_names_it(answer: Callable[[], Any], said: str, tmp_path: Path) -> None:
    parts = Parts(policy=doors_policy(), environment=Doors(4), reflector=Reader(answer))
    told = stopped(tmp_path, parts)
    assert said in told
    assert "reflect() of reflector 'mine'" in told
    assert f"{HERE}:" in told


class Writer:
    """A curator that returns texts."""

    name = "mine"

    async def curate(self, reflections: Sequence[Reflection], view: object) -> tuple[DeltaOp, ...]:
        return ("add this",)  # type: ignore[return-value] # pyright: ignore[reportReturnType]


def test_a_curator_that_returns_texts_is_told_what_to_return(tmp_path: Path) -> None:
    told = stopped(tmp_path, Parts(policy=doors_policy(), environment=Doors(4), curator=Writer()))
    assert "curate() of curator 'mine' returned ('add this',) (tuple)" in told


class Talker(ScriptedPolicy):
    """Answers with no reply."""

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Any:
        return 5


def no_policy(section: object) -> object:
    return object()


def test_a_policy_that_is_none_is_told_what_to_be(tmp_path: Path) -> None:
    told = stopped(tmp_path, Parts(policy=Talker(["x"], name="talker"), environment=Doors(4)))
    assert "generate() of policy 'talker' returned 5 (int); expected a Reply" in told
    section = PolicySection(name=f"{__name__}:no_policy")
    with pytest.raises(UserCodeError, match=rf"it lacks name, version, .*aclose \(.*{HERE}:"):
        make_policy(section)


async def test_a_bug_in_the_function_of_an_agent_names_it(tmp_path: Path) -> None:
    def solve(task: Task, knowledge: str) -> Trajectory:
        lost_table()
        raise AssertionError

    config = doors_config(tmp_path, playbook={"reflector": "rules", "curator": "direct"})
    async with Agent(solve, config) as agent:
        with pytest.raises(EvolveError, match=r"solves tasks raised Operat.*user_code\.py:\d+ in lost"):
            await agent.run(["one"])


async def test_what_the_function_of_an_agent_returns_is_checked(tmp_path: Path) -> None:
    async with Agent(lambda task, knowledge: "done", doors_config(tmp_path)) as agent:  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        with pytest.raises(EvolveError, match=r"'done' \(str\); expected evolve\.Trajectory"):
            await agent.run(["one"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"action_format": "json"}, "action_format is 'json'; expected one of code, text, tools"),
        ({"stop": "END"}, "stop is 'END'; expected texts"),
        ({"tools": ("search",)}, "tools is ('search',)"),
        ({"name": ""}, "name is ''"),
        ({"describe": lambda profile: None}, "expected a text"),
        ({"start": None}, "lacks start()"),
    ],
)
def test_an_environment_is_refused_before_anything_starts(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    world = Doors(4)
    for name, value in change.items():
        setattr(world, name, value)
    with pytest.raises(EvolveError) as error:
        run(doors_config(tmp_path), parts=Parts(policy=doors_policy(), environment=world))
    assert said in str(error.value)


class Listed(Doors):
    """Returns the tasks it was given."""

    def __init__(self, **splits: list[Task]) -> None:
        super().__init__()
        self.splits = splits

    def tasks(self, split: str) -> Sequence[Task]:
        return self.splits.get(split, ())


def door(task_id: str, scenario: str = "") -> Task:
    return Task(id=task_id, instruction="Open the red door.", scenario=scenario)


@pytest.mark.parametrize(
    ("splits", "said"),
    [
        ({"train": [door("a"), door("a")]}, "id 'a' is used twice"),
        ({"train": [door("a", "s")], "test_normal": [door("b", "s")]}, "scenario 's' stands in the splits"),
        ({"train": [door("a", "s")], "test_normal": [door("a", "t")]}, "id 'a' stands in the splits"),
        ({"train": ["Open the red door."]}, "expected evolve.Task"),
    ],
)
def test_tasks_that_cannot_be_told_apart_are_refused(splits: dict[str, list[Task]], said: str, tmp_path: Path) -> None:
    with pytest.raises(EvolveError) as error:
        run(doors_config(tmp_path), parts=Parts(policy=doors_policy(), environment=Listed(**splits)))
    assert said in str(error.value)


@pytest.fixture
def own(tmp_path: Path, root: Path) -> Path:
    """Return the folder of a user whose world has a bug in its grade."""
    source = root / "examples" / "own_environment"
    folder = tmp_path / "own"
    folder.mkdir()
    for name in ("evolve.toml", "tasks.jsonl"):
        (folder / name).write_text((source / name).read_text())
    text = (source / "depot.py").read_text().replace("        checks = (", "        1 / 0\n        checks = (")
    (folder / "depot.py").write_text(text)
    return folder


def test_the_command_shows_the_line_and_no_traceback(own: Path) -> None:
    line = (own / "depot.py").read_text().splitlines().index("        1 / 0") + 1
    _, err = finish(start(own, "run"), code=1)
    assert f"depot.py:{line} in grade" in one_sentence(err)
    assert f"  depot.py:{line} in grade: 1 / 0" in err
    assert "`evolve resume`" in err
    _, err = finish(start(own, "--debug", "run"), code=1)
    assert "Traceback" in err
    assert "ZeroDivisionError" in err


def test_an_interrupted_run_says_how_far_it_came(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    stop = subprocess.run([sys.executable, "slow.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in stop.stderr
    with open_store(doors_config(tmp_path), read_only=True) as store:
        record = find_record(store, None)
    assert (record.status, record.reason) == ("stopped", "interrupted after 2 of 4 tasks")
    assert record.seconds > 0


SLOW = """
import os, signal
from pathlib import Path
from evolve.loop.session import Parts, run
from tests.evolve.toy_doors import Doors, doors_config, doors_policy

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background hands down that it is ignored


class Watch:
    def notify(self, event):
        if getattr(event, "done", 0) == 2:
            os.kill(os.getpid(), signal.SIGINT)


run(
    doors_config(Path.cwd(), run={"batch_size": 1, "concurrency": 1}),
    parts=Parts(policy=doors_policy(0.05), environment=Doors(4)),
    observers=[Watch()],
)
"""
