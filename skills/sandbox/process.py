"""A second sandbox for environments that need real CPython: one child process per session (Linux).

The child starts with an empty environment, imports a fixed list of standard modules, and then gives up, for good: new
files, sockets and pipes (RLIMIT_NOFILE 0), children (RLIMIT_NPROC 0), memory beyond the limit (RLIMIT_AS), the root
user, further imports, every function of the operating system but a few, and every audited operation of CPython but a
harmless few. Time is kept by the host, which kills; once the host is gone, the kernel does. Messages are JSON lines:
arguments and results are plain data.

Not covered: a defect of CPython or of the kernel that an attacker drives on purpose. CPython has such defects (a
buffered reader used after it is freed gives native code), and there is no system call filter and no namespace: run
hostile code in `skills.sandbox.monty`, or this in a container. Where the host is root the child has a user of its own
and cannot signal anybody; elsewhere it would have the host's, and the sandbox refuses to start unless the caller says
`same_user=True`. The clock is the real one. A child that catches MemoryError goes on, within the same limit. `dump()`
records the code and the host's answers, and `load()` runs them again in a new child: code that reads the clock may
differ.
"""

from __future__ import annotations

import builtins
import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from memory.errors import BadInput, EvolveError
from skills.protocols import Limits, RunResult
from skills.sandbox.hosts import HostCalls, Modules
from skills.sandbox.output import Printed, cut

_CHILD = Path(__file__).with_name("process_child.py")
_MAX_MESSAGE = 4 << 20
_START_SECONDS = 20.0
_CHUNK = 65_536


class NotIsolated(EvolveError, RuntimeError):
    """The child would run as the host's own user."""


class _Ended(Exception):
    """The child is gone or had to be killed; the text is the report."""


class ProcessSandbox:
    """Makes CPython sessions (about 40 ms each). `same_user` accepts children with the host's user id."""

    def __init__(self, *, same_user: bool = False) -> None:
        """Raise `NotIsolated` where the host is not root and nobody said `same_user`."""
        if os.geteuid() != 0 and not same_user:
            raise NotIsolated(
                f"got a host with user id {os.geteuid()}, expected root in a container, whose children get a user of "
                "their own: a defect of CPython would let their code act as you. Use skills.sandbox.monty, or say "
                "ProcessSandbox(same_user=True) for code that is not hostile"
            )
        self._sessions: list[ProcessSession] = []

    def session(self, modules: Modules, limits: Limits | None = None) -> ProcessSession:
        """Start a session that sees `modules` as `apps.<module>.<function>`."""
        session = ProcessSession(modules, limits or Limits())
        self._sessions = [one for one in self._sessions if one.alive] + [session]
        return session

    def load(self, state: bytes, modules: Modules, limits: Limits | None = None) -> ProcessSession:
        """Start a session from a `dump()` by replaying it. Raises `BadInput` when `state` is none of ours."""
        session = self.session(modules, limits)
        session.replay(state)
        return session

    def close(self) -> None:
        """End every session."""
        for session in self._sessions:
            session.close()
        self._sessions = []


class ProcessSession:
    """One child process. Made by `ProcessSandbox`."""

    def __init__(self, modules: Modules, limits: Limits) -> None:
        self._limits = limits
        self._hosts = HostCalls(limits)
        self._functions = {(m, f): self._hosts.watch(call) for m, fs in modules.items() for f, call in fs.items()}
        self._calls_left = limits.host_calls
        self._log: list[dict[str, Any]] = []
        self._buffer = b""
        self._child: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-P", "-s", "-S", "-B", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # never read: by it the child is tied to this process
            env={"PYTHONHASHSEED": "0"},
            cwd="/",
        )
        start = {
            "modules": {name: sorted(functions) for name, functions in modules.items()},
            "memory_mb": limits.memory_mb,
            "recursion_depth": limits.recursion_depth,
        }
        try:
            self._send(start)
            self._receive(_START_SECONDS)
        except _Ended as error:
            self.close()
            raise EvolveError(f"the sandbox process did not start ({error}); this sandbox needs Linux") from error

    @property
    def alive(self) -> bool:
        """False once closed or stopped by a limit."""
        return self._child is not None

    def run(self, code: str) -> RunResult:
        """Execute `code`. Never raises for anything the code did; a time or call limit ends the session."""
        return self._run(code, [])

    def dump(self) -> bytes:
        """Return the record of this session. Raises `EvolveError` on a session that has ended."""
        if self._child is None:
            raise EvolveError("cannot dump a session that is closed or hit a limit; dump it before")
        return json.dumps(self._log).encode()

    def replay(self, state: bytes) -> None:
        """Run what `state` records; recorded host answers are used, host functions are not called."""
        try:
            for entry in json.loads(state):
                self._run(entry["code"], list(entry["replies"]))
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(
                f"not a dump of this sandbox ({error!r}); expected the bytes that dump() returned"
            ) from error

    def close(self) -> None:
        """Kill the child. Closing twice is fine."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _run(self, code: str, replies: list[dict[str, Any]]) -> RunResult:
        if self._child is None:
            return RunResult(error="SessionEnded: this session is closed or hit a limit; start a new one", fatal=True)
        printed = Printed(self._limits.output_chars)
        entry: dict[str, Any] = {"code": code, "replies": []}
        self._log.append(entry)
        self._hosts.begin()
        try:
            error = self._converse(code, replies, printed, entry["replies"])
        except _Ended as ended:
            error = str(ended)
            self.close()
        except BaseException:  # the child waits for an answer that will not come, and would take the next code for it
            self.close()
            raise
        finally:
            self._hosts.reraise_interrupt()
        if error is None:
            return RunResult(stdout=printed.text())
        if error.startswith("MemoryError"):
            self.close()
        report = cut(self._hosts.named(error), self._limits.output_chars)
        return RunResult(stdout=printed.text(), error=report, fatal=not self.alive)

    def _converse(
        self, code: str, replies: list[dict[str, Any]], printed: Printed, record: list[dict[str, Any]]
    ) -> str | None:
        """Send the code, answer host calls until it is done, and return its error."""
        seconds = self._limits.seconds_per_run
        self._send({"run": code}, seconds)
        while True:
            started = time.monotonic()
            message = self._receive(seconds)
            seconds -= time.monotonic() - started
            if "print" in message:
                printed.write(str(message["print"]))
            elif "call" in message:
                reply = replies.pop(0) if replies else self._answer(message)
                record.append(reply)
                if self._hosts.overtime:
                    raise _Ended(self._hosts.late())
                started = time.monotonic()
                self._send(reply, seconds)
                seconds -= time.monotonic() - started
            elif "done" in message:
                return None if message["done"] is None else str(message["done"])
            else:
                raise _Ended("RuntimeError: the sandbox process sent something else than a message")

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Call the host function a message names; what it raises is the answer."""
        if self._calls_left <= 0:
            raise _Ended(f"RuntimeError: host call limit {self._limits.host_calls} exceeded")
        self._calls_left -= 1
        try:
            function = self._functions[tuple(message["call"])]
            args, kwargs = list(message["args"]), dict(message["kwargs"])
        except (KeyError, TypeError, ValueError) as error:
            raise _Ended("RuntimeError: the sandbox process sent a call that does not exist") from error
        try:
            value = function(*args, **kwargs)
            json.dumps(value)
        except Exception as error:  # whatever a host function raised is for the code to see
            known = next(base.__name__ for base in type(error).__mro__ if hasattr(builtins, base.__name__))
            first = error.args[0] if error.args else ""
            return {"raise": known, "message": first if isinstance(first, str) else str(error)}
        return {"value": value}

    def _send(self, message: dict[str, Any], seconds: float = _START_SECONDS) -> None:
        """Write a message. The child is not trusted to read it: a pipe that stays full ends the session."""
        assert self._child is not None
        assert self._child.stdin is not None
        pipe, deadline = self._child.stdin.fileno(), time.monotonic() + seconds
        rest = memoryview(json.dumps(message).encode() + b"\n")
        with suppress(BrokenPipeError):  # the child has ended: whoever waits for its answer is told
            while rest:
                left = max(0.0, deadline - time.monotonic())
                if not select.select([], [pipe], [], left)[1]:
                    raise _Ended(f"TimeoutError: time limit exceeded: {self._limits.seconds_per_run} s")
                rest = rest[os.write(pipe, rest[: select.PIPE_BUF]) :]  # what a pipe takes without waiting

    def _receive(self, seconds: float) -> dict[str, Any]:
        """Return the next message. The child is not trusted: size, time and form are checked."""
        assert self._child is not None
        assert self._child.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._child.stdout], [], [], left)[0]:
                raise _Ended(f"TimeoutError: time limit exceeded: {self._limits.seconds_per_run} s")
            chunk = os.read(self._child.stdout.fileno(), _CHUNK)
            if not chunk or len(self._buffer) > _MAX_MESSAGE:
                raise _Ended("RuntimeError: the sandbox process ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise _Ended("RuntimeError: the sandbox process sent something else than a message") from error
