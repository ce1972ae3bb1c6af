"""One conformance suite over every sandbox: what model-written code can and cannot do, and what it costs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from skills.protocols import Limits, Sandbox
from skills.sandbox import monty
from skills.sandbox.monty import MontySandbox, importable
from skills.sandbox.process import ProcessSandbox

SANDBOXES = {"monty": MontySandbox, "process": lambda: ProcessSandbox(same_user=True)}


class ApiError(ValueError):
    """A host exception with a type of its own."""


def _echo(*args: Any, **kwargs: Any) -> Any:
    return {"args": list(args), "kwargs": kwargs}


def _refuse(why: str) -> None:
    raise ApiError(f"422: {why}")


def _missing(key: str) -> None:
    raise KeyError(key)


MODULES = {"mail": {"echo": _echo, "refuse": _refuse, "missing": _missing}, "todo": {"echo": _echo}}


@pytest.fixture(scope="module", params=sorted(SANDBOXES))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    made = SANDBOXES[request.param]()
    yield made
    made.close()


def test_calls_host_functions_and_keeps_state(sandbox: Sandbox) -> None:
    session = sandbox.session(MODULES)
    assert session.run("found = apps.mail.echo(1, 'a', deep=[1, {'b': None}])").error is None
    result = session.run("print(found['args'], found['kwargs'])\nprint(apps.todo.echo()['args'])")
    assert result.stdout == "[1, 'a'] {'deep': [1, {'b': None}]}\n[]\n"
    assert result.error is None
    assert not result.fatal
    session.close()


def test_a_host_exception_is_catchable_and_named(sandbox: Sandbox) -> None:
    session = sandbox.session(MODULES)
    caught = session.run(
        "try:\n    apps.mail.refuse('too big')\nexcept ValueError as error:\n    print('caught', error)"
    )
    assert (caught.stdout, caught.error) == ("caught 422: too big\n", None)
    uncaught = session.run("print('before')\napps.mail.refuse('again')")
    assert (uncaught.stdout, uncaught.error, uncaught.fatal) == ("before\n", "ApiError: 422: again", False)
    assert session.run("apps.mail.missing('k')").error in ("KeyError: 'k'", "KeyError: k")
    assert session.run("raise ValueError('mine')").error == "ValueError: mine"
    session.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("x = (", "SyntaxError"),
        ("nobody", "NameError"),
        ("1 / 0", "ZeroDivisionError"),
        ("apps.mail.nowhere()", "AttributeError"),
        ("def f(n):\n    return f(n + 1)\nf(0)", "RecursionError"),
        ("raise SystemExit('3')", "SystemExit"),
        ("\ud800", "SyntaxError"),
    ],
)
def test_an_error_is_reported_and_the_session_lives(sandbox: Sandbox, code: str, kind: str) -> None:
    session = sandbox.session(MODULES)
    session.run("kept = 7")
    result = session.run(code)
    assert result.error is not None
    assert result.error.startswith(kind)
    assert not result.fatal
    assert session.run("print(kept)").stdout == "7\n"
    session.close()


def test_output_is_cut_with_a_note(sandbox: Sandbox) -> None:
    session = sandbox.session(MODULES, Limits(output_chars=100))
    result = session.run("for i in range(50):\n    print('x' * 9)")
    assert result.stdout == "xxxxxxxxx\n" * 10 + "\n[output cut: 400 more characters]"
    assert result.error is None
    assert session.run("print('y' * 100)").stdout == "y" * 100 + "\n[output cut: 1 more characters]"
    long_error = session.run("raise ValueError('z' * 5000)").error
    assert long_error is not None
    assert len(long_error) < 200
    session.close()


@pytest.mark.parametrize(
    ("code", "seconds", "kind"),
    [
        ("while True:\n    pass", 1, "TimeoutError"),
        ("try:\n    while True:\n        pass\nexcept BaseException:\n    print('alive')", 1, "TimeoutError"),
        ("x = 'a' * 10**10", 300, "MemoryError"),
        ("x = []\nwhile True:\n    x.append('a' * 10000 + str(len(x)))", 300, "MemoryError"),
        ("x = ('b' * 100_000).join(['a'] * 100_000)", 300, "MemoryError"),
        ("for i in range(500):\n    apps.mail.echo()", 300, "RuntimeError"),
    ],
)
def test_a_limit_ends_the_session(sandbox: Sandbox, code: str, seconds: float, kind: str) -> None:
    session = sandbox.session(MODULES, Limits(seconds_per_run=seconds, host_calls=100))
    started = time.monotonic()
    result = session.run(code)
    assert time.monotonic() - started < 600
    assert result.fatal
    assert result.error is not None
    assert result.error.startswith(kind)
    assert "alive" not in result.stdout
    after = session.run("print(1)")
    assert (after.stdout, after.fatal) == ("", True)
    assert str(after.error).startswith("SessionEnded")
    session.close()


def test_host_calls_up_to_the_limit_are_allowed(sandbox: Sandbox) -> None:
    session = sandbox.session(MODULES, Limits(host_calls=1500))
    assert session.run("for i in range(1500):\n    apps.mail.echo()\nprint(i)").stdout == "1499\n"
    assert session.run("apps.mail.echo()").fatal


def test_an_interrupt_in_a_host_function_reaches_the_host(sandbox: Sandbox) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    session = sandbox.session({"mail": {"stop": stop}})
    with pytest.raises(KeyboardInterrupt):
        session.run("try:\n    apps.mail.stop()\nexcept BaseException:\n    pass")
    after = session.run("print('after')")
    assert (after.stdout, after.error) == ("after\n", None) or after.fatal, "no answer is taken for another"
    session.close()


def test_the_same_code_prints_the_same(sandbox: Sandbox) -> None:
    code = "import random\nprint(random.random(), {'a', 'b', 'c'})"
    if isinstance(sandbox, MontySandbox):
        code += "\nfrom datetime import datetime\nprint(datetime.now())"
    seen = set[str]()
    for _ in range(2):
        session = sandbox.session(MODULES)
        seen.add(session.run(code).stdout)
        session.close()
        time.sleep(0.002)
    assert len(seen) == 1


def test_the_default_sandbox_begins_with_the_year_2026_at_a_fixed_seed() -> None:
    made = MontySandbox()
    session = made.session({})
    assert session.run("from datetime import datetime\nprint(datetime.now())").stdout == "2026-01-01 00:00:00\n"
    first = session.run("import random\nprint(random.random())").stdout
    assert first == f"{random.Random(0).random()}\n"
    made.close()


def test_sessions_do_not_share_state(sandbox: Sandbox) -> None:
    one, two = sandbox.session(MODULES), sandbox.session(MODULES)
    one.run("secret = 1")
    assert two.run("print(secret)").error == "NameError: name 'secret' is not defined"
    one.close()
    two.close()
    three = sandbox.session(MODULES)
    assert three.run("print(secret)").error == "NameError: name 'secret' is not defined"
    three.close()


def test_a_fork_goes_its_own_way(sandbox: Sandbox) -> None:
    root = sandbox.session(MODULES)
    root.run("log = [1]\nmail = apps.mail\ndef add(n):\n    log.append(n)\n    return apps.mail.echo(n)['args'][0]")
    state = root.dump()
    fork = sandbox.load(state, {"mail": {**MODULES["mail"], "echo": lambda n: {"args": [n * 10]}}})
    assert fork.run("print(add(2), mail.echo(3)['args'], log)").stdout == "20 [30] [1, 2]\n"
    assert root.run("print(add(5), log)").stdout == "5 [1, 5]\n"
    root.close()
    fork.close()


def test_what_is_said_to_be_importable_is_and_nothing_else() -> None:
    found = importable()
    assert {"datetime", "json", "math", "re"} <= set(found)
    assert {"numpy", "subprocess", "socket"}.isdisjoint(found)
    session = MontySandbox().session({})
    assert session.run("".join(f"import {name}\n" for name in found)).error is None
    assert "ModuleNotFoundError" in str(session.run("import statistics").error)
    session.close()


def test_trying_what_is_importable_gives_its_worker_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = MontySandbox()
    session = sandbox.session({})
    monkeypatch.setattr(sandbox, "session", lambda _modules: session)
    monkeypatch.setattr(monty, "shared", lambda: sandbox)
    importable.__wrapped__()
    assert "SessionEnded" in str(session.run("1").error)
    sandbox.close()
