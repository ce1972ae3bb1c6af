"""How every verb prints: a table for people, JSON for programs, and how it opens the workspace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from evolve.config import Config
    from memory.store import Store

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
    Console().print(drawn)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def load(context: typer.Context) -> Config:
    """Return the configuration that applies here."""
    from evolve.configfile import load_config

    return load_config(context.obj)


@contextmanager
def reading(context: typer.Context) -> Iterator[tuple[Config, Store]]:
    """Open the workspace to read. Raises `NotFound` when there is none."""
    from evolve.app import open_store

    config = load(context)
    with open_store(config, read_only=True) as store:
        yield config, store


@contextmanager
def writing(context: typer.Context) -> Iterator[tuple[Config, Store]]:
    """Open the workspace to write, beside a run if one is under way: index updates are left to its owner."""
    from evolve.app import open_store

    config = load(context)
    with open_store(config, owner=False) as store:
        yield config, store
