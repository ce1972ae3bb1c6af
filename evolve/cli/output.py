"""Output of every verb: a table for people, and JSON for programs.

Nothing else in this package prints: what agents learned and saw may hold the escape codes of a terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, what turns the direction of a line, and halves of surrogate pairs."""


def plain(text: str) -> str:
    """Return text that does nothing to a terminal: characters that command one are shown as their escapes."""
    return _UNSAFE.sub(lambda match: _escaped(match[0], short=True), text.replace("\r\n", "\n"))


def _escaped(character: str, *, short: bool) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if short and code < 256 else f"\\u{code:04x}"


def as_text(data: Any, indent: int | None = 2) -> str:
    """Return `data` as JSON that says exactly the same and does nothing to a terminal."""
    written = json.dumps(data, ensure_ascii=False, indent=indent, default=str)
    return _UNSAFE.sub(lambda match: _escaped(match[0], short=False), written)


def say(text: str = "", *, error: bool = False, end: str = "\n") -> None:
    """Print a text, never as markup, on stdout or stderr."""
    print(plain(text), file=sys.stderr if error else sys.stdout, end=end, flush=True)


def show(data: Any, as_json: bool, text: str) -> None:
    """Print `data` as JSON, or `text`."""
    if as_json:
        print(as_text(data))
    else:
        say(text)


def table(rows: Sequence[Mapping[str, Any]], as_json: bool, *, empty: str = "nothing there") -> None:
    """Print rows of equal keys as a table, or as a JSON list."""
    if as_json:
        print(as_text(list(rows)))
        return
    if not rows:
        say(empty)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    read_by_people = sys.stdout.isatty()  # else by a program, whatever FORCE_COLOR says: one line a row, no id is cut
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        drawn.add_column(Text(plain(name)), overflow="fold")
    for row in rows:
        cells = (plain(_cell(value)) for value in row.values())
        drawn.add_row(*(Text(each if read_by_people else each.replace("\n", "\\n")) for each in cells))
    console = Console()
    if not read_by_people:
        console.width = console.measure(drawn, options=console.options.update(max_width=10**6)).maximum
    console.print(drawn)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
