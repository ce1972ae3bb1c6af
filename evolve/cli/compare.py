"""`evolve compare`: which way of learning does better on the same stream, with honest statistics.

A comparison is shown while it happens: one bar for each arm on a terminal, plain lines elsewhere.
"""

from __future__ import annotations

import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from evolve.cli.display import EVERY
from evolve.cli.opening import begin, load
from evolve.cli.output import Json, plain, say, show, table
from evolve.cli.run import Env, Limit, Name, Policy, Set, Tag, Tasks, called, overrides
from evolve.progress import Progress as ProgressEvent
from evolve.progress import RunStarted, TaskDone

if TYPE_CHECKING:
    from evolve.compare.arms import Arm
    from evolve.compare.comparison import Comparison
    from evolve.compare.plan import Replicate


Arms = Annotated[
    list[str] | None,
    typer.Argument(
        help="`default`, a configuration file, a preset, a run, a snapshot; each may be followed by "
        "`section.key=value` pairs in the same quotes. The others are compared with the first."
    ),
]
Numbers = Annotated[str | None, typer.Option(help="Comma-separated; every arm lives once in each.")]


def register(app: typer.Typer) -> None:
    """Add the verb to the root command."""
    app.command("compare")(compare)


def compare(
    context: typer.Context,
    arms: Arms = None,
    tasks: Tasks = None,
    env: Env = None,
    policy: Policy = None,
    limit: Limit = None,
    values: Set = None,
    split: Annotated[str, typer.Option(help="Split on which the arms are judged.")] = "test_normal",
    report_tasks: Annotated[int | None, typer.Option(min=1, help="Most tasks of that split; else all.")] = None,
    deployments: Numbers = None,
    seeds: Numbers = None,
    controls: Annotated[bool, typer.Option(help="Also the first arm again (A/A), and without memory.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder of the comparison; else one in the workspace.")] = None,
    name: Name = None,
    tag: Tag = None,
    reprint: Annotated[Path | None, typer.Option(help="Print the finished comparison of this folder again.")] = None,
    as_json: Json = False,
) -> None:
    """Let several arms learn from the same tasks in turns, judge them on the same held-out tasks, and report.

    The same command goes on with a comparison that was stopped, and prints one that is done.
    """
    from evolve.compare import compare_session
    from evolve.compare.arms import Given
    from evolve.compare.plan import ComparisonOptions
    from evolve.config.file import assigned

    if reprint is not None:
        _finish(compare_session.reprint(reprint), reprint, as_json)
        return
    given = assigned(values or ()) | overrides(tasks, env, policy, limit, None)
    asked = ComparisonOptions(
        split=split,
        report_tasks=report_tasks,
        deployments=_numbers(deployments, "--deployments"),
        seeds=_numbers(seeds, "--seeds"),
        controls=controls,
    )
    load(context, given)  # from now on the user's own modules are found
    plan = compare_session.plan_of(arms or (), Given(context.obj, given), asked, shlex.join(["evolve", *sys.argv[1:]]))
    config = begin(context, given | called(name, tag))
    folder = out or compare_session.folder_of(config, plan)
    with _board(as_json) as board:
        found = compare_session.compare(plan, folder, watch=board.watch if board else None, config=config)
    _finish(found, folder, as_json)


def _numbers(text: str | None, option: str) -> tuple[int, ...]:
    from memory.errors import BadInput

    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError as wrong:
        raise BadInput(f"{option} {text!r} was refused; expected numbers with commas, as in 0,1,2") from wrong


def _board(as_json: bool) -> AbstractContextManager[Board | None]:
    if as_json:
        return nullcontext()

    return Board()


def _finish(found: Comparison, folder: Path, as_json: bool) -> None:
    """Print the tables; say where the rest is."""
    from evolve.compare import markdown_report

    if as_json:
        show(found.model_dump(mode="json"), as_json, "")
        _draw(found, folder)
        return
    if found.toy:
        say(f"{found.toy}\n")
    table(markdown_report.differences(found), as_json)
    say()
    table(markdown_report.arms(found), as_json)
    floor = "not measured" if found.floor is None else f"{found.floor:.1%} of the tasks flip"
    say(f"\nn = {found.n} pairs on {found.split}, look {found.look}, {found.family} questions, A/A floor: {floor}")
    say("\n".join(f"warning: {text}" for text in found.warnings), end="\n" * bool(found.warnings))
    say(_draw(found, folder))
    say(f"report: {folder / 'report.md'}; again: {markdown_report.reprint(found)}")


def _draw(found: Comparison, folder: Path) -> str:
    from evolve.compare import pictures

    try:
        return "pictures: " + ", ".join(map(str, pictures.save(found, folder)))
    except ModuleNotFoundError:
        return "no pictures: matplotlib is not installed (pip install 'evolve-agents[plot]')"


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
