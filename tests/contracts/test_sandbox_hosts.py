"""Every run has a clock of its own for its host calls, and what one run raised is not what the next one reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from skills.protocols import Limits, Sandbox
from skills.sandbox import hosts
from skills.sandbox.hosts import HostCalls
from skills.sandbox.monty import MontySandbox
from skills.sandbox.process import ProcessSandbox

SANDBOXES = {"monty": MontySandbox, "process": lambda: ProcessSandbox(same_user=True)}
LONG = Limits(seconds_per_run=300, host_seconds=1)


class ApiError(ValueError):
    """A host exception with a type of its own."""


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(hosts, "time", SimpleNamespace(perf_counter=made.perf_counter))
    return made


@pytest.fixture(scope="module", params=sorted(SANDBOXES))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    made = SANDBOXES[request.param]()
    yield made
    made.close()


def test_host_calls_of_a_run_have_their_time_together_and_each_run_anew(sandbox: Sandbox, clock: Clock) -> None:
    session = sandbox.session({"mail": {"wait": clock.pass_by}}, LONG)
    for _ in range(3):
        assert session.run("apps.mail.wait(0.5)\napps.mail.wait(0.5)\nprint(1)").stdout == "1\n"
    late = session.run(
        "print(2)\napps.mail.wait(0.5)\napps.mail.wait(0.5)\napps.mail.wait(0.25)\napps.mail.wait(0)\nprint(3)"
    )
    assert (late.stdout, late.error, late.fatal) == ("2\n", "TimeoutError: host calls took over 1.0 s", True)
    session.close()


def test_a_flood_of_values_has_twice_the_time_of_a_run(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on by a second whenever somebody looks: what a call takes is none of it, what comes between is."""

    def look() -> float:
        clock.now += 1
        return clock.now

    monkeypatch.setattr(hosts.time, "perf_counter", look)
    sandbox, called = MontySandbox(), list[int]()
    session = sandbox.session({"mail": {"keep": called.append}}, Limits(seconds_per_run=10, host_seconds=1000))
    result = session.run("for n in range(100):\n    apps.mail.keep(n)")
    assert (result.error, result.fatal) == ("TimeoutError: passing values to host calls took over 20.0 s", True)
    assert 5 <= len(called) <= 15
    assert session.run("1").error == "SessionEnded: this session is closed or hit a limit; start a new one"
    sandbox.close()


def test_the_clock_of_a_run_stands_still_inside_host_functions(clock: Clock) -> None:
    calls = HostCalls(Limits())
    calls.begin()
    clock.pass_by(2)
    calls.watch(clock.pass_by)(5)
    calls.watch(clock.pass_by)(8)
    clock.pass_by(1)
    assert calls.seconds == 3
    calls.begin()
    assert calls.seconds == 0


def test_the_time_of_a_call_that_failed_counts_too(clock: Clock) -> None:
    def fail() -> None:
        clock.pass_by(2)
        raise ApiError

    calls = HostCalls(LONG)
    calls.begin()
    with pytest.raises(ApiError):
        calls.watch(fail)()
    assert calls.overtime
    assert calls.seconds == 0


def test_an_error_of_an_earlier_run_is_not_reported_again(sandbox: Sandbox) -> None:
    def refuse(why: str) -> None:
        raise ApiError(why)

    session = sandbox.session({"mail": {"refuse": refuse}})
    caught = "try:\n    apps.mail.refuse('no')\nexcept ValueError:\n    pass\n"
    assert session.run(caught).error is None
    assert session.run("raise ValueError('no')").error == "ValueError: no"
    assert session.run("apps.mail.refuse('no')").error == "ApiError: no"
    assert session.run(f"{caught}raise ValueError('yes')").error == "ValueError: yes"
    session.close()


def test_an_interrupt_is_raised_once() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    calls = HostCalls(Limits())
    calls.reraise_interrupt()
    for again in (calls.watch(stop), calls.reraise_interrupt):
        with pytest.raises(KeyboardInterrupt):
            again()
    calls.reraise_interrupt()


@pytest.mark.parametrize(("count", "fits"), [(1, True), (2, False)])
def test_arguments_may_fill_the_memory_limit_to_the_last_character(count: int, fits: bool) -> None:
    """A call with one text takes 32 characters beside it: the arguments, the tuple, the text and no keywords."""
    calls = HostCalls(Limits(memory_mb=4))
    keep: Callable[[str], int] = calls.watch(len)
    assert keep("a" * (4 * 1024 * 1024 - 32 - 32 - count)) > 0
    if fits:
        assert keep("a") == 1
    else:
        assert keep("") == 0
        with pytest.raises(ValueError, match="4 MB of arguments"):
            keep("")
