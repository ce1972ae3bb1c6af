"""Contract of the sandbox: the only place where model-written code runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from memory.records import Frozen

HostFunction = Callable[..., Any]


class Limits(Frozen):
    """Resource limits of one session."""

    seconds_per_run: float = 2.0
    memory_mb: int = 64
    recursion_depth: int = 200
    host_calls: int = 10_000
    host_seconds: float = 120.0
    """Time that host functions may take in one run, all calls together. It is looked at between calls."""
    output_chars: int = 4_000


class RunResult(Frozen):
    """What one piece of code printed, and how it failed if it did."""

    stdout: str = ""
    error: str | None = None
    """`ExceptionType: message` of the first uncaught exception, syntax errors and limits included."""
    fatal: bool = False
    """True when the session cannot be used any more (a limit was hit)."""


class SandboxSession(Protocol):
    """State that lives across runs, like a REPL."""

    def run(self, code: str) -> RunResult:
        """Execute `code`. Never raises for anything the code did."""
        ...

    def dump(self) -> bytes:
        """Return the session's state, for a fork."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class Sandbox(Protocol):
    """Makes sessions. One pool per process."""

    def session(
        self, modules: Mapping[str, Mapping[str, HostFunction]], limits: Limits | None = None
    ) -> SandboxSession:
        """Start a session that sees `modules` as `apps.<module>.<function>`; nothing else of the host is reachable."""
        ...

    def load(
        self, state: bytes, modules: Mapping[str, Mapping[str, HostFunction]], limits: Limits | None = None
    ) -> SandboxSession:
        """Start a session from a `dump()`."""
        ...

    def close(self) -> None:
        """End every session and worker."""
        ...
