"""One attempt at one task: code goes into the sandbox, what it printed comes back.

Grading by state difference: every required change is there, and nothing else changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from evolve.environments.office.desk import Desk
from evolve.environments.office.tables import TABLES, Row, State
from evolve.protocols import Action, StepResult
from memory.records import Check, Outcome
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


@dataclass(frozen=True)
class Change:
    """One row that differs from the start: `row_id` is None for a new row, `row` None for a removed one."""

    table: str
    row_id: str | None
    row: Row | None


def changes(before: State, after: State) -> list[Change]:
    """Return the rows of `after` that are new, different or gone."""
    found: list[Change] = []
    for table in TABLES:
        old, new = before.tables[table], after.tables[table]
        found += [Change(table, row_id, row) for row_id, row in new.items() if row_id in old and row != old[row_id]]
        found += [Change(table, None, row) for row_id, row in new.items() if row_id not in old]
        found += [Change(table, row_id, None) for row_id in old if row_id not in new]
    return found


def grade(before: State, wanted: State, got: State, handed_in: bool) -> Outcome:
    """Return success only if `got` made exactly the changes of `wanted`, and the task was handed in."""
    left = changes(before, got)
    missing: list[Change] = []
    checks: list[Check] = []
    for change in changes(before, wanted):
        if change in left:
            left.remove(change)
            checks.append(Check(name=change.table, passed=True))
        else:
            missing.append(change)
    for change in missing:
        near = [other for other in left if _comparable(change, other)]
        nearest = max(near, key=partial(_alike, change), default=None)
        if nearest is not None:
            left.remove(nearest)
        checks.append(Check(name=change.table, passed=False, detail=_detail(change, nearest)))
    checks += [Check(name=change.table, passed=False, detail="unexpected change") for change in left]
    checks.append(Check(name="done", passed=handed_in, detail="" if handed_in else "the task was not handed in"))
    success = all(check.passed for check in checks)
    return Outcome(success=success, reward=float(success), checks=tuple(checks))


def _comparable(a: Change, b: Change) -> bool:
    return a.table == b.table and a.row_id == b.row_id and a.row is not None and b.row is not None


def _alike(a: Change, b: Change) -> int:
    first, second = _flat(a), _flat(b)
    return sum(first[field] == second.get(field) for field in first)


def _flat(change: Change) -> dict[str, Any]:
    row = dict(change.row or {})
    return row | row.pop("house", {})


def _detail(wanted: Change, got: Change | None) -> str:
    if got is None:
        return "missing"
    first, second = _flat(wanted), _flat(got)
    fields = [*first, *(field for field in second if field not in first)]
    return "; ".join(
        f"{field}: expected {first.get(field)}, got {second.get(field)}"
        for field in fields
        if first.get(field) != second.get(field)
    )
