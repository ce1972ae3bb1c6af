"""Shows a run while it happens: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from evolve.cli.output import plain
from evolve.progress import Answered, Evaluated, Learned, Notice, RunFinished, RunStarted, TaskDone
from evolve.progress import Progress as ProgressEvent

EVERY = 10
"""Without a terminal, every so many tasks a line is printed."""


class Display:
    """An observer that draws. Use as a context manager; prints to stderr, so that stdout stays for results."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.bar = Progress(
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._judging = False
        self._task = self.bar.add_task("starting", total=None)

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def notify(self, event: ProgressEvent) -> None:
        """Draw one event."""
        match event:
            case RunStarted():
                self.bar.update(self._task, total=event.tasks or None)
                self._judging = event.mode == "quarantine"
                verb = "resuming" if event.resumed else "starting"
                self._say(f"{verb} run {event.run_id}: {event.mode}, {event.tasks} tasks. {event.estimate}")
            case TaskDone():
                self._task_done(event)
            case Learned() if event.pending:
                self._say(f"{event.pending} changes wait for `evolve review list`")
            case Answered() if self._judging:
                counts = f"{event.accepted} pass, {event.rejected} refused, {event.deferred} wait"
                self._say(f"gate {event.gate}: {counts}")
            case Notice():
                self._say(event.text)
            case Evaluated():
                figures = f"TGC {event.tgc:.1%}, SGC {event.sgc:.1%}, coverage {event.coverage:.0%}"
                self._say(f"{event.split} ({event.arm}): {event.tasks} tasks, {figures}")
            case RunFinished():
                self._say(f"run {event.run_id} {event.status}")  # why it stopped is the command's last line
            case _:
                pass

    def _task_done(self, event: TaskDone) -> None:
        usage = event.usage
        alone = event.running_success is None  # an evaluation without memory has no other arm
        success, control = event.control_success if alone else event.running_success, ""
        if event.control_success is not None and not alone:
            control = f" (without memory {event.control_success:.0%} of {event.control_done})"
        tokens = usage.prompt_tokens + usage.completion_tokens
        text = f"success {_percent(success)}{control}, {usage.calls:,} calls, {tokens:,} tokens"
        if usage.cost_usd:
            text += f", ${usage.cost_usd:.2f}"
        self.bar.update(self._task, completed=event.done, description=text)
        if not self.console.is_terminal and (event.arm == "main" or alone) and event.done % EVERY == 0:
            self._say(f"{event.done}/{event.total}: {text}")

    def _say(self, text: str) -> None:
        self.console.print(plain(text), markup=False, highlight=False, soft_wrap=True)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
