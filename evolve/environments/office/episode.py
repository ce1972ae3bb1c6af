"""One attempt at one task: code goes into the sandbox, what it printed comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evolve.environments.office.desk import Desk
from evolve.environments.office.grade import grade
from evolve.environments.office.state import State
from evolve.protocols import Action, StepResult
from memory.records import Outcome
from skills.protocols import SandboxSession
from skills.sandbox.monty import shared

_OFFICE_ERRORS = ("OfficeError: ", "RuleBroken: ")


class OfficeEpisode:
    """Single use. Pickles between steps (the sandbox session travels as its dump)."""

    def __init__(self, start: State, desk: Desk, wanted: Callable[[], State]) -> None:
        self._start = start
        self._desk = desk
        self._wanted = wanted
        self._session: SandboxSession | None = None
        self._dump: bytes | None = None

    async def step(self, action: Action) -> StepResult:
        """Run the action's code. A refused call or a bug in the code is an observation with `error`."""
        return self.run(action.text)

    def run(self, code: str) -> StepResult:
        """Run code, synchronously."""
        result = self._sandbox().run(code)
        error = result.error
        for prefix in _OFFICE_ERRORS:
            error = error.removeprefix(prefix) if error else None
        done = self._desk.done or self._desk.locked or result.fatal
        if error:
            return StepResult(observation=f"{result.stdout}error: {error}", error=error, done=done)
        return StepResult(observation=result.stdout.strip() or "ok", done=done)

    async def grade(self) -> Outcome:
        """Compare the office with what the gold solution leaves behind."""
        return grade(self._start, self._wanted(), self._desk.state, self._desk.done)

    async def close(self) -> None:
        """Give the sandbox worker back."""
        self.discard()

    def discard(self) -> None:
        """Give the sandbox worker back, synchronously."""
        if self._session is not None:
            self._session.close()
            self._session = None

    @property
    def state(self) -> State:
        """The office as it stands now: hash it with `state.digest()`."""
        return self._desk.state

    def _sandbox(self) -> SandboxSession:
        if self._session is None:
            modules = self._desk.modules()
            self._session = shared().load(self._dump, modules) if self._dump else shared().session(modules)
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        dump = self._session.dump() if self._session is not None else self._dump
        return self.__dict__ | {"_session": None, "_dump": dump}
