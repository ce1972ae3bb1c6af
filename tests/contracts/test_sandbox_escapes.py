"""Attempts to get out of every sandbox (benchmarks/escape_suite.py). Each must fail, and the host must live and go on.

E1  no attempt has an effect on the host: no token, file, connection, signal, no changed object, no time without end
E2  each ends in an error, and the next session works
E3  the detector sees all these effects where there is no sandbox
E4  what the process runner says it does not cover is so, and nothing more than that was found
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.escape_suite import ABOUT_THE_RUNNER, LIMITS, Attempt, attempt_in, attempt_unprotected, load
from skills.protocols import Limits, Sandbox
from skills.sandbox.monty import MontySandbox
from skills.sandbox.process import ProcessSandbox

SANDBOXES = {"monty": MontySandbox, "process": lambda: ProcessSandbox(same_user=True)}
ATTEMPTS = load()
GROUPS = list(dict.fromkeys(attempt.group for attempt in ATTEMPTS))


@pytest.fixture(scope="module", params=sorted(SANDBOXES))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    made = SANDBOXES[request.param]()
    yield made
    made.close()


def works(sandbox: Sandbox) -> bool:
    """Tell whether a new session does what it should."""
    session = sandbox.session({"mail": {"echo": lambda value: value}})
    result = session.run("print(apps.mail.echo(1))")
    session.close()
    return result.stdout == "1\n"


def test_the_suite_is_large_and_without_repeats() -> None:
    assert len({attempt.code for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 100


@pytest.mark.parametrize("group", GROUPS)
def test_no_attempt_gets_out_and_each_ends_in_an_error(sandbox: Sandbox, group: str) -> None:
    wrong: dict[str, object] = {}
    for attempt in ATTEMPTS:
        if attempt.group == group:
            trial = attempt_in(sandbox, attempt)
            if trial.effects or not trial.error or not works(sandbox):
                wrong[attempt.name] = trial
    assert wrong == {}


SEEN = {
    "token": ("files", "read by open"),
    "files": ("processes", "os.system"),
    "connection": ("network", "socket"),
    "signal": ("processes", "signal the host"),
    "time": ("memory", "list of lists"),
}


@pytest.mark.parametrize("effect", SEEN)
def test_the_detector_sees_an_attempt_that_nothing_stops(effect: str) -> None:
    (attempt,) = [one for one in ATTEMPTS if (one.group, one.name) == SEEN[effect]]
    assert attempt.group not in ABOUT_THE_RUNNER
    assert effect in attempt_unprotected(attempt).effects


def test_the_detector_sees_a_host_that_gives_its_token_away(sandbox: Sandbox) -> None:
    assert attempt_in(sandbox, Attempt("tampering", "asked", "apps.mail.keep({'changed': 1})")).effects == ()
    honest = "apps.mail.keep({'changed': True})\nprint(apps.mail.verify())"
    assert attempt_in(sandbox, Attempt("tampering", "by a call", honest)).effects == ("token",)


@pytest.mark.parametrize(
    "code",
    [
        "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
        "x = []\nfor i in range(100_000): x = [x]\napps.mail.echo(x)",
        "apps.mail.echo('x' * 5_000_000)",
    ],
    ids=["regular expression", "deep argument", "large argument"],
)
def test_what_may_end_well_ends_in_time(sandbox: Sandbox, code: str) -> None:
    started = time.monotonic()
    session = sandbox.session({"mail": {"echo": lambda value: None}}, LIMITS)
    session.run(code)
    session.close()
    assert time.monotonic() - started < 300
    assert works(sandbox)


def answer(code: str, limits: Limits | None = None) -> str:
    """Return what code prints in the process runner; it must end without an error."""
    sandbox = ProcessSandbox(same_user=True)
    result = sandbox.session({}, limits).run(code)
    sandbox.close()
    assert result.error is None, result
    return result.stdout.strip()


def test_the_clock_of_the_process_runner_is_the_real_one() -> None:
    assert abs(float(answer("import time\nprint(time.time())")) - time.time()) < 60


def test_code_in_the_process_runner_that_catches_a_memory_error_goes_on() -> None:
    code = "try:\n    x = 'x' * 10**9\nexcept MemoryError:\n    print('on')"
    assert answer(code, Limits(memory_mb=16)) == "on"


def test_the_process_runner_keeps_a_few_functions_of_the_system() -> None:
    names = answer("import os, sys\nprint(*(n for n, f in vars(sys.modules['posix']).items() if callable(f)))").split()
    functions = {name for name in names if not isinstance(getattr(os, name, None), type)}
    assert {name for name in functions if not name.startswith("_path_")} == {"_exit", "fspath", "urandom"}


def apart(code: str) -> subprocess.CompletedProcess[str]:
    """Run code as another user than root: a test may be root in a container."""
    lines = (
        "import os\nfrom skills.sandbox.process import ProcessSandbox\nif os.geteuid() == 0:\n    os.seteuid(65534)\n"
    )
    return subprocess.run([sys.executable, "-c", lines + code], capture_output=True, text=True)


def test_the_process_runner_does_not_start_as_its_own_user_unasked() -> None:
    refused = apart("ProcessSandbox()")
    assert refused.returncode != 0
    assert "same_user=True" in refused.stderr
    assert apart("ProcessSandbox(same_user=True)").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a child a user of its own")
def test_each_child_of_root_has_a_user_of_its_own() -> None:
    sandbox = ProcessSandbox()
    sessions = [sandbox.session({}) for _ in range(2)]
    states = [Path(f"/proc/{pid}/status").read_text() for pid in children(os.getpid())]
    users = [state.split("Uid:")[1].split()[0] for state in states if "Uid:" in state]
    assert all(session.alive for session in sessions)
    assert len({user for user in users if int(user) > 2_000_000_000}) >= 2 or "65534" in users
    sandbox.close()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    listed = (Path(f"/proc/{pid}/task") / str(pid) / "children").read_text().split()
    return [int(each) for each in listed]
