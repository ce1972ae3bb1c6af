"""Shows a comparison while it happens: one bar for each arm on a terminal, plain lines elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from evolve.cli.display import EVERY
from evolve.cli.output import plain
from evolve.compare.arms import Arm
from evolve.compare.plan import Replicate
from evolve.progress import Progress as ProgressEvent
from evolve.progress import RunStarted, TaskDone


class Board:
    """Watches all lives. Use as a context manager; prints to stderr, so that stdout stays for results."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def __enter__(self) -> Board:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def watch(self, replicate: Replicate, arm: Arm) -> LifeBar:
        """Return the observer of a life."""
        return LifeBar(self, f"{replicate.name}: {arm.name}")

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(plain(text), markup=False, highlight=False, soft_wrap=True)


class LifeBar:
    """An observer that draws one life: its stream, then its judging. Warnings stand in the report."""

    def __init__(self, board: Board, name: str) -> None:
        self._board, self._name = board, name
        self._bar: TaskID | None = None

    def notify(self, event: ProgressEvent) -> None:
        """Draw one event."""
        match event:
            case RunStarted():
                what = "judging" if event.mode == "frozen" else "learning"
                name = plain(f"{self._name}, {what}").replace("[", "\\[")
                self._bar = self._board.bars.add_task(name, total=event.tasks, said="")
                self._board.say(f"{self._name}: {what}, {event.tasks} tasks. {event.estimate}")
            case TaskDone() if self._bar is not None:
                rates = (event.running_success, event.control_success)
                rate = next((each for each in rates if each is not None), 0.0)
                said = f"{rate:.0%}, {event.usage.calls:,} calls"
                self._board.bars.update(self._bar, completed=event.done, said=said)
                if not self._board.console.is_terminal and event.done % EVERY == 0:
                    self._board.say(f"{self._name}: {event.done}/{event.total}: {said}")
            case _:
                pass
