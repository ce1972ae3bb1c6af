"""How every verb prints: a table for people, JSON for programs, and how it opens the workspace."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from evolve.config import Config
    from memory.store import Store

WIDTH = 120
"""Columns of a table that is not shown on a terminal."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def show(data: Any, as_json: bool, text: str) -> None:
    """Print `data` as JSON, or `text` as it is (never as markup: it may hold learned text)."""
    if as_json:
        print(json.dumps(data, ensure_ascii=False, indent=2, default=str))
    else:
        print(text)


def table(rows: Sequence[Mapping[str, Any]], as_json: bool, *, empty: str = "nothing there") -> None:
    """Print rows of equal keys as a table, or as a JSON list."""
    if as_json:
        print(json.dumps(list(rows), ensure_ascii=False, indent=2, default=str))
        return
    if not rows:
        print(empty)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(_cell(value)) for value in row.values()))
    console = Console()
    console.width = console.width if console.is_terminal else max(console.width, WIDTH)
    console.print(drawn)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def load(context: typer.Context, changes: Mapping[str, Any] | None = None) -> Config:
    """Return the configuration that applies here, with `changes` (`section.key` -> value) from the command
    line; `preset` stands for itself.

    From now on `module:name` finds the user's own modules in this folder and beside evolve.toml. They come last on the
    path: a file of theirs that is called like one of our packages takes nothing over.
    """
    from evolve.cli.loglines import configure
    from evolve.configfile import by_section, load_config

    config = load_config(context.obj, by_section(changes or {}))
    configure(config.log, config.workspace)
    own = (str(Path.cwd()), str(config.root.resolve()))
    sys.path += [folder for folder in dict.fromkeys(own) if folder not in sys.path]
    return config


@contextmanager
def reading(context: typer.Context) -> Generator[tuple[Config, Store]]:
    """Open the workspace to read. Raises `NotFound` when there is none."""
    from evolve.app import open_store

    config = load(context)
    with open_store(config, read_only=True) as store:
        yield config, store


@contextmanager
def writing(context: typer.Context) -> Generator[tuple[Config, Store]]:
    """Open the workspace to write, beside a run if one is under way: index updates are left to its owner."""
    from evolve.app import open_store

    config = load(context)
    with open_store(config, owner=False) as store:
        yield config, store
