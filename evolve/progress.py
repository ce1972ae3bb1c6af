"""Progress of a run for observers: typed events, one way. An observer that breaks is dropped; the run goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from memory.records import Frozen, Trajectory, Usage

_log = logging.getLogger("evolve.run")


class Progress(Frozen):
    """Base of every event."""

    run_id: str


class RunStarted(Progress):
    """Before the first task."""

    mode: str
    tasks: int
    """Episodes of the main arm that the run will hold."""
    estimate: str
    """What it will cost, in words."""
    resumed: bool = False


class Notice(Progress):
    """A sentence the user should read: a control that is off, a suspicious evaluation."""

    text: str


class TaskDone(Progress):
    """One episode was graded; the counts are those of the run so far."""

    task_id: str
    arm: str
    success: bool
    done: int
    total: int
    running_success: float | None
    """Share of main-arm successes so far; None before the first."""
    control_success: float | None
    """The same for the no-memory control; None where none ran."""
    control_done: int = 0
    """Episodes of that control so far."""
    usage: Usage


class Learned(Progress):
    """A batch was committed."""

    batch: int
    applied: int
    refused: int
    pending: int
    """Changes that wait for review."""
    version: int
    """Namespace version afterwards."""


class Answered(Progress):
    """A gate was asked about the changes of a batch."""

    gate: str
    accepted: int
    rejected: int
    deferred: int


class Evaluated(Progress):
    """One arm of one split was evaluated."""

    split: str
    arm: str
    snapshot_id: str | None
    tasks: int
    tgc: float
    sgc: float
    coverage: float


class RunFinished(Progress):
    """After the last task, or when the run stopped."""

    status: str
    """`done`, or `stopped` (resumable)."""
    reason: str = ""


class Observer(Protocol):
    """Watches a run. It gets copies of facts and can change nothing."""

    def notify(self, event: Progress) -> None:
        """Take note of an event."""
        ...


class Observers:
    """Tells several observers; the first exception of one ends its service, with a log line."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._active = list(observers)

    def add(self, observer: Observer) -> None:
        """Tell one more."""
        self._active.append(observer)

    def notify(self, event: Progress) -> None:
        """Pass an event on, and log it."""
        if _log.isEnabledFor(logging.INFO):
            _log.info(type(event).__name__, extra=event.model_dump(mode="json"))
        for observer in tuple(self._active):
            try:
                observer.notify(event)
            except Exception as broken:  # whatever a foreign display does wrong, the run is worth more
                self._active.remove(observer)
                _log.warning("observer dropped", extra={"observer": repr(observer), "error": repr(broken)})


class Tally:
    """Counts of a run so far, for progress and for the budget of a resumed run."""

    def __init__(self, total: int, done: Iterable[Trajectory] = ()) -> None:
        self.total = total
        self.usage = Usage()
        self._passed: dict[str, list[bool]] = {}
        for trajectory in done:
            self.add(trajectory)

    def add(self, trajectory: Trajectory) -> None:
        """Count an episode."""
        self._passed.setdefault(trajectory.arm, []).append(trajectory.success)
        self.usage = self.usage + trajectory.usage

    def event(self, trajectory: Trajectory) -> TaskDone:
        """Return the progress event of an episode that was just counted."""
        return TaskDone(
            run_id=trajectory.run_id,
            task_id=trajectory.task.id,
            arm=trajectory.arm,
            success=trajectory.success,
            done=len(self._passed.get("main") or self._passed[trajectory.arm]),
            total=self.total,
            running_success=self.success("main"),
            control_success=self.success("no_memory"),
            control_done=len(self._passed.get("no_memory", ())),
            usage=self.usage,
        )

    def success(self, arm: str) -> float | None:
        """Return the share of successes of an arm; None without episodes."""
        passed = self._passed.get(arm)
        return sum(passed) / len(passed) if passed else None
