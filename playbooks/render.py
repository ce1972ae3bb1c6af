"""Knowledge as it stands in a prompt: append-stable, without counters or dates.

Core records come first in order of creation, then what was recalled for this task, each under its stable short id. New
core records are appended, so that the prompt's prefix (and the server's cache of it) survives learning. A record's text
cannot leave its place: further lines are indented, so none can pass for a heading or for another record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from memory.records import Record
from playbooks.bullets import clean_text, one_line
from playbooks.view import creation_order
from policies.protocols import Profile

CORE_HEADING = "## Rules of this environment"
TASK_HEADING = "## Rules recalled for this task"

_DELIMITERS = ("<|", "|>")


def render_record(record: Record[Any], profile: Profile) -> str:
    """Return one record: `- content [12]` on one line (compact), `[shr-00012] content` with indented lines (full)."""
    text = neutral(record.payload.text())
    if profile == "compact":
        return f"- {one_line(text)} [{record.number}]"
    return f"[{record.label}] " + "\n  ".join(text.split("\n"))


def render(records: Sequence[Record[Any]], profile: Profile, *, core: Collection[str] = ()) -> str:
    """Return the knowledge section of a prompt; empty without records.

    `records` are those to be shown, in order of recall; those whose id is in `core` go first, in order of creation.
    A record is shown once.
    """
    unique = {record.id: record for record in records}
    first = sorted((r for r in unique.values() if r.id in core), key=creation_order)
    rest = [r for r in unique.values() if r.id not in core]
    parts: list[str] = []
    for heading, group in ((CORE_HEADING, first), (TASK_HEADING, rest)):
        if group and profile == "full":
            parts.append(heading)
        parts += [render_record(record, profile) for record in group]
    return "\n".join(parts)


def cost(records: Sequence[Record[Any]], profile: Profile, count_tokens: Callable[[str], int]) -> int:
    """Return the tokens of the rendered records, the most that any split into core and recall takes."""
    if not records:
        return 0
    text = render(records, profile)
    return count_tokens(text if profile == "compact" else f"{CORE_HEADING}\n{text}")


def neutral(text: str) -> str:
    """Return learned text without control characters and with chat delimiters (`<|...|>`) broken up."""
    text = clean_text(text)
    for delimiter in _DELIMITERS:
        text = text.replace(delimiter, " ".join(delimiter))
    return text
