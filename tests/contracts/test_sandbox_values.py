"""Code in a sandbox cannot exhaust the host through what it passes to host functions.

V1  a value that expands far (shared, nested, inside an object) is refused before the host function sees it
V2  so is a result; ordinary values go through
V3  host functions have a time of their own, and the arguments of a session fill its memory limit once
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.protocols import Action
from skills.protocols import Limits, Sandbox
from skills.sandbox.monty import MontySandbox
from skills.sandbox.process import ProcessSandbox

SANDBOXES = {"monty": MontySandbox, "process": lambda: ProcessSandbox(same_user=True)}
DOUBLED = "x = ['a']\nfor _ in range(20):\n    x = [x, x]\n"
BOMBS = {
    "list": DOUBLED + "apps.mail.keep(x)",
    "keyword": DOUBLED + "apps.mail.keep(value=x)",
    "dict": "x = {'a': 1}\nfor _ in range(20):\n    x = {'l': x, 'r': x}\napps.mail.keep(x)",
    "tuple": "x = ('a',)\nfor _ in range(20):\n    x = (x, x)\napps.mail.keep(x)",
    "text": "x = ['a' * 100_000] * 100\napps.mail.keep(x)",
    "nested": "x = []\nfor _ in range(150):\n    x = [x]\napps.mail.keep(x)",
}


@pytest.fixture(scope="module", params=sorted(SANDBOXES))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    made = SANDBOXES[request.param]()
    yield made
    made.close()


@pytest.mark.parametrize("name", BOMBS)
def test_a_value_that_expands_never_reaches_the_host(sandbox: Sandbox, name: str) -> None:
    kept: list[Any] = []
    session = sandbox.session({"mail": {"keep": lambda value: kept.append(value)}})
    result = session.run(BOMBS[name])
    assert result.error
    assert kept == []
    session.close()


def test_nor_does_one_inside_an_object() -> None:
    sandbox, kept = MontySandbox(max_sessions=1), list[Any]()
    session = sandbox.session({"mail": {"keep": lambda value: kept.append(repr(value))}})
    result = session.run(f"class Box:\n    pass\n\nbox = Box()\n{DOUBLED}box.inside = x\napps.mail.keep(box)")
    assert result.error is not None
    assert "expands to more than" in result.error
    assert kept == []
    sandbox.close()


async def test_a_mail_of_a_million_recipients_is_one_error_in_the_office() -> None:
    office = Office(OfficeConfig(deployment=3))
    episode = office.start(office.tasks("train")[0])
    result = await episode.step(Action(text=DOUBLED + "apps.mail.send(to=x, subject='a', body='b', priority='normal')"))
    await episode.close()
    assert result.error is not None
    assert "expands to more than" in result.error


def test_a_result_that_expands_is_refused_too(sandbox: Sandbox) -> None:
    value: Any = ["a"]
    for _ in range(20):
        value = [value, value]
    session = sandbox.session({"mail": {"give": lambda: value, "small": lambda: [1] * 1000}})
    result = session.run("try:\n    apps.mail.give()\nexcept ValueError as error:\n    print(error)")
    assert "expands to more than" in result.stdout
    assert session.run("print(len(apps.mail.small()))").stdout == "1000\n"
    session.close()


def test_host_functions_have_a_time_of_their_own(sandbox: Sandbox) -> None:
    session = sandbox.session({"mail": {"wait": lambda: time.sleep(0.02)}}, Limits(host_seconds=0.1))
    result = session.run("while True:\n    apps.mail.wait()")
    assert result.fatal
    assert result.error == "TimeoutError: host calls took over 0.1 s"


def test_the_arguments_of_a_session_fill_its_memory_once(sandbox: Sandbox) -> None:
    session = sandbox.session({"mail": {"keep": len}}, Limits(memory_mb=32, seconds_per_run=300))
    result = session.run("text = 'a' * 2_000_000\nfor n in range(100):\n    apps.mail.keep(text)\n    print(n)")
    assert result.error is not None
    assert "32 MB of arguments" in result.error
    assert result.stdout.split()[-1] == "15"
    session.close()
