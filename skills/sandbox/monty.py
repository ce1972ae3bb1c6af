"""The default sandbox: pydantic-monty, a Python interpreter in Rust that runs in worker processes.

The code sees no file system, no network, no environment and no host object except the functions passed in as
`apps.<module>.<function>`. Clock, sleep and `random` are fixed, so that the same code prints the same text. The
interpreter covers a subset of Python (no `yield`, `del`, class inheritance; few standard modules): for real CPython see
`skills.sandbox.process`. A session occupies one worker process (6 MB) until it is closed.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

from pydantic_monty import (
    ExternalModule,
    Monty,
    MontyComplete,
    MontyConversionError,
    MontyCrashedError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    OSPolicy,
    ResourceLimits,
)

from memory.errors import EvolveError
from skills.protocols import Limits, RunResult
from skills.sandbox.hosts import HostCalls, Modules
from skills.sandbox.output import Printed, cut, describe

_IDS = uuid.UUID("5b1a7c52-8f0e-4c7e-9d5b-6f3c1c0a7e11")
_TRANSPORT = 2
"""A run may take this many times `seconds_per_run` together with the time its values travel."""
EPISODES = 256
"""Most episodes that a world on the shared sandbox holds open at once (its `max_concurrency`); further ones wait."""
_FATAL = (
    "TimeoutError: feed time limit",
    "MemoryError: memory limit",
    "MemoryError: the worker exceeded its memory limit",
    "RuntimeError: suspension limit",
)


class SandboxBusy(EvolveError, RuntimeError):
    """Every worker is taken by an open session."""


class MontySandbox:
    """A pool of worker processes, each started when it is first needed. Use `shared()` unless it must be separate.

    There are two sessions for each of `EPISODES`, so that an episode which holds one gets a second at once (the office
    does the gold solution while it grades): if both had to be waited for, episodes could wait for each other for ever.
    """

    def __init__(self, *, max_sessions: int = 2 * EPISODES, clock: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._max_sessions = max_sessions
        self._policy = OSPolicy(datetime=clock, sleep="zero", random_start={"seed": 0})
        self._pool: Monty | None = None

    def session(self, modules: Modules, limits: Limits | None = None) -> MontySandboxSession:
        """Start a session that sees `modules` as `apps.<module>.<function>`. Raises `SandboxBusy`."""
        return MontySandboxSession(self._checkout, modules, limits or Limits())

    def load(self, state: bytes, modules: Modules, limits: Limits | None = None) -> MontySandboxSession:
        """Start a session from a `dump()` of this process's own sessions; the call budget starts anew.

        `state` is trusted: never pass bytes that came from outside.
        """
        return MontySandboxSession(self._checkout, modules, limits or Limits(), state)

    def close(self) -> None:
        """End every session and worker. The next session starts a new pool."""
        if self._pool is not None:
            self._pool.__exit__(None, None, None)
            self._pool = None

    def _checkout(self, apps: ExternalModule, limits: Limits) -> MontySession:
        if self._pool is None:
            self._pool = Monty(max_processes=self._max_sessions, checkout_timeout=10.0).__enter__()
        checkout = self._pool.checkout(
            limits=ResourceLimits(
                max_feed_duration_secs=limits.seconds_per_run,
                max_memory=limits.memory_mb << 20,
                max_recursion_depth=limits.recursion_depth,
                max_suspensions=limits.host_calls + 1,  # one for our own `import apps`
            ),
            os_policy=self._policy,
            external_modules={"apps": apps},
        )
        try:
            return checkout.__enter__()
        except TimeoutError as error:
            message = (
                f"all {self._max_sessions} sandbox sessions are open; close() those that are no longer used, and give "
                f"an environment that opens them `max_concurrency = {EPISODES}`: then further episodes wait"
            )
            raise SandboxBusy(message) from error


class MontySandboxSession:
    """One REPL-like session; not shared between threads. Made by `MontySandbox`."""

    def __init__(
        self,
        checkout: Callable[[ExternalModule, Limits], MontySession],
        modules: Modules,
        limits: Limits,
        state: bytes | None = None,
    ) -> None:
        self._limits = limits
        self._hosts = HostCalls(limits)
        self._session: MontySession | None = checkout(self._module(modules), limits)
        if state is not None:
            self._session.load_session(state)
        else:
            self._session.feed_run("import apps")

    def run(self, code: str) -> RunResult:
        """Execute `code`. Never raises for anything the code did; a time, memory or call limit ends the session."""
        if self._session is None:
            return RunResult(error="SessionEnded: this session is closed or hit a limit; start a new one", fatal=True)
        printed = Printed(self._limits.output_chars)
        self._hosts.begin()
        try:
            stopped = self._drive(self._session, code, printed)
        except (MontyRuntimeError, MontySyntaxError) as error:
            return self._failed(self._hosts.named(error.display("type-msg")), printed)
        except (MontyCrashedError, MontyConversionError) as error:
            return self._failed(describe(error), printed, fatal=True)
        finally:
            self._hosts.reraise_interrupt()
        if stopped:
            return self._failed(stopped, printed, fatal=True)
        return RunResult(stdout=printed.text())

    def _drive(self, session: MontySession, code: str, printed: Printed) -> str:
        """Run the code from one host call to the next; return why it was stopped, because the calls took too long.

        The interpreter's own clock stands still while values travel, so a flood of big arguments needs this one.
        """
        seconds = _TRANSPORT * self._limits.seconds_per_run
        progress = session.feed_start(code, print_callback=lambda _stream, text: printed.write(text))
        while not isinstance(progress, MontyComplete):
            if self._hosts.seconds > seconds:
                return f"TimeoutError: passing values to host calls took over {seconds} s"
            if self._hosts.overtime:
                return self._hosts.late()
            progress = progress.resume_auto()
        return ""

    def dump(self) -> bytes:
        """Return the session's state (3 to 200 kB). Raises `EvolveError` on a session that has ended."""
        if self._session is None:
            raise EvolveError("cannot dump a session that is closed or hit a limit; dump it before")
        return self._session.dump()

    def close(self) -> None:
        """Give the worker back. Closing twice is fine."""
        if self._session is not None:
            self._session.__exit__(None, None, None)
            self._session = None

    def _failed(self, text: str, printed: Printed, fatal: bool = False) -> RunResult:
        fatal = fatal or text.startswith(_FATAL)
        if fatal:
            self.close()
        return RunResult(stdout=printed.text(), error=cut(text, self._limits.output_chars), fatal=fatal)

    def _module(self, modules: Modules) -> ExternalModule:
        """Wrap the host functions. Ids are derived from names, so that a dump finds its modules again."""
        wrapped = {
            name: ExternalModule(
                {key: self._hosts.watch(function) for key, function in functions.items()}, id=uuid.uuid5(_IDS, name)
            )
            for name, functions in modules.items()
        }
        return ExternalModule(wrapped, id=_IDS)


@cache
def importable() -> tuple[str, ...]:
    """Return the standard modules that code can import, found by trying each."""
    names = sorted(name for name in sys.stdlib_module_names if not name.startswith("_"))
    session = shared().session({})
    try:
        return tuple(name for name in names if session.run(f"import {name}").error is None)
    finally:
        session.close()


@cache
def _of_process(_pid: int) -> MontySandbox:
    return MontySandbox()


def shared() -> MontySandbox:
    """Return this process's sandbox: one pool of workers, started on first use."""
    return _of_process(os.getpid())
