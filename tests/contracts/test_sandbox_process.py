"""What the process runner's child is left with, seen from the host and from the code inside."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.errors import BadInput, EvolveError
from skills.protocols import Limits
from skills.sandbox import process
from skills.sandbox.process import ProcessSandbox, ProcessSession


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    made = ProcessSandbox(same_user=True)
    yield made
    made.close()


@pytest.fixture
def session(sandbox: ProcessSandbox) -> Iterator[ProcessSession]:
    def broken() -> None:
        raise UnicodeDecodeError("utf-8", b"x", 0, 1, "no text")

    def quiet() -> None:
        raise LookupError

    def numbered() -> None:
        raise OSError(2, "gone")

    made = sandbox.session(
        {"mail": {"echo": lambda *args: list(args), "broken": broken, "quiet": quiet, "numbered": numbered}},
        Limits(seconds_per_run=300, output_chars=1_000_000),
    )
    yield made
    made.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import socket", "ModuleNotFoundError: No module named 'socket' in this sandbox"),
        ("from http import client", "ModuleNotFoundError: No module named 'http' in this sandbox"),
        ("open('/etc/hostname')", "PermissionError: open is not allowed in this sandbox"),
        ("breakpoint()", "PermissionError: builtins.breakpoint is not allowed in this sandbox"),
        ("input()", "RuntimeError: input(): lost sys.stdin"),
        ("\0", "SyntaxError: source code string cannot contain null bytes"),
        ("raise ValueError", "ValueError"),
        ("raise ValueError('mine')", "ValueError: mine"),
    ],
)
def test_what_is_not_allowed_is_said_by_name(session: ProcessSession, code: str, error: str) -> None:
    result = session.run(code)
    assert (result.error, result.fatal) == (error, False)
    assert session.run("print(1)").stdout == "1\n"


def test_modules_that_agents_use_are_there(session: ProcessSession) -> None:
    names = (
        "bisect collections copy dataclasses datetime decimal fractions functools heapq itertools math re statistics"
    )
    assert session.run("".join(f"import {name}\n" for name in names.split())).error is None
    code = "import datetime\nprint(datetime.datetime.strptime('2026', '%Y').year, id(1) > 0, eval('1 + 1'))"
    assert session.run(code).stdout == "2026 True 2\n"


def children() -> list[int]:
    """Return the processes that this one has started."""
    return [int(each) for each in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def limits_of(pid: int) -> dict[str, tuple[str, str]]:
    """Return the resource limits of a process: name -> soft and hard."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    return {line[:26].strip(): (line[26:47].strip(), line[47:68].strip()) for line in lines}


def test_the_child_may_open_write_and_start_nothing() -> None:
    before = set(children())
    sandbox = ProcessSandbox(same_user=True)
    sandbox.session({}, Limits(memory_mb=64))
    sandbox.session({}, Limits(memory_mb=65))
    small, large = (limits_of(pid) for pid in sorted(set(children()) - before))
    for name in ("Max file size", "Max core file size", "Max processes", "Max open files"):
        assert small[name] == ("0", "0"), name
    assert small["Max address space"][0] == small["Max address space"][1]
    more = int(large["Max address space"][0]) - int(small["Max address space"][0])
    assert abs(more - 1024 * 1024) < 1024 * 1024, "a megabyte more is allowed, but for what the start took"
    sandbox.close()
    assert set(children()) == before


@pytest.mark.parametrize("length", [49_999, 50_000, 50_001, 120_000])
def test_long_prints_arrive_whole(session: ProcessSession, length: int) -> None:
    text = "".join(chr(97 + at % 25) for at in range(length))
    assert session.run(f"print({text!r}, end='')").stdout == text
    assert session.run("import sys\nprint(sys.stdout.write('abc'), sys.stdin)").stdout == "abc3 None\n"


def test_random_numbers_are_those_of_the_seed_nought(session: ProcessSession) -> None:
    assert session.run("import random\nprint(random.random())").stdout == f"{random.Random(0).random()}\n"


def test_code_may_call_as_deep_as_its_limit_says(sandbox: ProcessSandbox) -> None:
    session = sandbox.session({}, Limits(recursion_depth=150))
    assert session.run("def f(n):\n    return n and f(n - 1)\nprint(f(149))").stdout == "0\n"
    assert str(session.run("f(181)").error).startswith("RecursionError")
    session.close()


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("print(apps.mail.echo(1, [2, 'a'], None))", "[1, [2, 'a'], None]\n"),
        ("print(apps.mail.echo.__name__)", "echo\n"),
        (
            "try:\n    apps.mail.echo({1, 2})\nexcept TypeError as e:\n    print(str(e)[:48])",
            "apps.mail.echo: arguments must be plain data (Ob\n",
        ),
        ("try:\n    apps.mail.broken()\nexcept Exception as e:\n    print(type(e).__name__, e)", "Exception utf-8\n"),
        ("try:\n    apps.mail.quiet()\nexcept LookupError as e:\n    print(repr(str(e)))", "''\n"),
        ("try:\n    apps.mail.numbered()\nexcept OSError as e:\n    print(e)", "[Errno 2] gone\n"),
    ],
)
def test_values_and_errors_of_the_host_come_in(session: ProcessSession, code: str, printed: str) -> None:
    result = session.run(code)
    assert (result.stdout, result.error) == (printed, None)


def test_a_host_call_over_the_limit_ends_the_session(sandbox: ProcessSandbox) -> None:
    session = sandbox.session({"mail": {"echo": lambda: None}}, Limits(host_calls=2))
    assert session.run("apps.mail.echo()\napps.mail.echo()\nprint(1)").stdout == "1\n"
    result = session.run("print(2)\napps.mail.echo()")
    assert (result.stdout, result.error, result.fatal) == ("2\n", "RuntimeError: host call limit 2 exceeded", True)
    assert session.run("1").error == "SessionEnded: this session is closed or hit a limit; start a new one"
    assert not session.alive


MAIN = "import sys\nmain = sys.modules['__main__']\n"
ODD = "RuntimeError: the sandbox process sent something else than a message"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("main._send({'odd': 1})", ODD),
        ("main._send({'call': ['mail', 'nowhere'], 'args': [], 'kwargs': {}})", "a call that does not exist"),
        ("main._send({'call': 7, 'args': [], 'kwargs': {}})", "a call that does not exist"),
        ("main._send({'call': ['mail', 'echo'], 'args': 7, 'kwargs': {}})", "a call that does not exist"),
        ("main._send({'call': ['mail', 'echo']})", "a call that does not exist"),
        ("main._pipe_out.write(b'odd\\n')\nmain._pipe_out.flush()", ODD),
        ("main._pipe_out.write(b'7\\n')\nmain._pipe_out.flush()", ODD),
        ("main._pipe_out.write(b'[' * 100_000 + b'\\n')\nmain._pipe_out.flush()", ODD),
        ("main._pipe_out.write(b'x' * 5_000_000)\nmain._pipe_out.flush()", "RuntimeError: the sandbox process ended"),
        ("main.os._exit(0)", "RuntimeError: the sandbox process ended"),
    ],
)
def test_a_child_that_sends_something_else_is_ended(session: ProcessSession, code: str, error: str) -> None:
    result = session.run(f"print('before')\n{MAIN}{code}\nprint('after')")
    assert error in str(result.error)
    assert (result.stdout, result.fatal, session.alive) == ("before\n", True, False)


def test_a_child_that_is_gone_is_told(sandbox: ProcessSandbox) -> None:
    before = set(children())
    session = sandbox.session({})
    (pid,) = set(children()) - before
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    result = session.run("print(1)")
    assert (result.error, result.fatal, session.alive) == ("RuntimeError: the sandbox process ended", True, False)


def test_a_child_whose_host_is_gone_ends_whatever_its_code_does() -> None:
    script = Path(process.__file__).with_name("process_child.py")
    code = "try:\n    apps.mail.echo()\nexcept BaseException:\n    pass\nprint('on')"
    start = {"modules": {"mail": ["echo"]}, "memory_mb": 64, "recursion_depth": 200}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, script], stdin=pipe, stdout=pipe, stderr=pipe) as child:
        asked = b"".join(json.dumps(each).encode() + b"\n" for each in (start, {"run": code}))
        said, _ = child.communicate(asked, timeout=300)
    assert [sorted(json.loads(line)) for line in said.splitlines()] == [["ready"], ["args", "call", "kwargs"]]
    assert child.returncode == 0


HOST = f"""\
import os
from pathlib import Path
from skills.protocols import Limits
from skills.sandbox.process import ProcessSandbox

def begun():
    print(Path(f"/proc/self/task/{{os.getpid()}}/children").read_text(), flush=True)

session = ProcessSandbox(same_user=True).session({{"mail": {{"begun": begun}}}}, Limits(seconds_per_run=3000))
asks = "main._send({{'call': ['mail', 'begun'], 'args': [], 'kwargs': {{}}}})"
session.run({MAIN!r} + asks + "\\nwhile True:\\n    pass")
"""


def test_a_child_that_loops_ends_with_its_host() -> None:
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        child = os.pidfd_open(int(host.stdout.readline()))
        assert not select.select([child], [], [], 0)[0]
        host.kill()
    ended = select.select([child], [], [], 300)[0]
    if not ended:
        signal.pidfd_send_signal(child, signal.SIGKILL)
    os.close(child)
    assert ended


def test_a_child_that_reads_no_answers_is_ended_within_its_time() -> None:
    sandbox = ProcessSandbox(same_user=True)
    session = sandbox.session({"mail": {"long": lambda: "x" * 1000}}, Limits(seconds_per_run=2))
    call = "main._send({'call': ['mail', 'long'], 'args': [], 'kwargs': {}})"
    result = session.run(f"{MAIN}for _ in range(300):\n    {call}\nwhile True:\n    pass")
    assert (result.error, result.fatal, session.alive) == ("TimeoutError: time limit exceeded: 2.0 s", True, False)
    sandbox.close()


def test_a_memory_error_that_nobody_catches_ends_the_session(sandbox: ProcessSandbox) -> None:
    session = sandbox.session({}, Limits(memory_mb=16, seconds_per_run=300))
    result = session.run("x = 'x' * 10**9")
    assert (result.error, result.fatal, session.alive) == ("MemoryError", True, False)


@pytest.mark.parametrize("state", [b"", b"{", b"[1]", b'[{"code": "1"}]', b"7", b'[{"code": "1", "replies": null}]'])
def test_what_is_no_record_of_a_session_is_not_loaded(sandbox: ProcessSandbox, state: bytes) -> None:
    with pytest.raises(BadInput, match="not a dump of this sandbox"):
        sandbox.load(state, {})


def test_a_session_that_ended_has_no_state(sandbox: ProcessSandbox) -> None:
    session = sandbox.session({})
    session.close()
    session.close()
    with pytest.raises(EvolveError, match="dump it before"):
        session.dump()


def test_a_loaded_session_does_not_call_the_host_again(sandbox: ProcessSandbox) -> None:
    asked: list[int] = []

    def ask(number: int) -> int:
        asked.append(number)
        return number * 10

    modules: dict[str, dict[str, Any]] = {"mail": {"ask": ask}}
    root = sandbox.session(modules)
    root.run("found = [apps.mail.ask(1), apps.mail.ask(2)]")
    fork = sandbox.load(root.dump(), modules)
    assert fork.run("print(found, apps.mail.ask(3))").stdout == "[10, 20] 30\n"
    assert asked == [1, 2, 3]
    again = sandbox.load(fork.dump(), modules)
    assert again.run("print(found)").stdout == "[10, 20]\n"
    assert asked == [1, 2, 3]
    for session in (root, fork, again):
        session.close()


def test_closing_the_sandbox_ends_its_sessions() -> None:
    sandbox = ProcessSandbox(same_user=True)
    one, two = sandbox.session({}), sandbox.session({})
    one.close()
    three = sandbox.session({})
    assert (two.alive, three.alive) == (True, True)
    sandbox.close()
    assert (one.alive, two.alive, three.alive) == (False, False, False)
