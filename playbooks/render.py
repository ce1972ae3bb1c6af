"""Knowledge as it stands in a prompt: append-stable, without counters or dates.

Core records come first in order of creation, then what was recalled for this task, each under its stable short id. New
core records are appended, so that the prompt's prefix (and the server's cache of it) survives learning. A record's text
cannot leave its place: further lines are indented, so none can pass for a heading or for another record. In the full
profile mistake notes stand last, under a heading of their own that asks to judge each before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from memory.records import Record
from playbooks.contradictions import marks
from playbooks.kinds.bullet import clean_text, one_line
from playbooks.kinds.note import Note
from playbooks.view import creation_order
from policies.protocols import Profile
from policies.templates import broken_up

CORE_HEADING = "## Rules of this environment"
TASK_HEADING = "## Rules recalled for this task"
NOTES_HEADING = """\
## Notes on past mistakes
Judge each note before you use it: applicable, partly applicable or irrelevant to this task. Follow what is applicable,
take from a partly applicable one only what fits, and leave an irrelevant one aside."""


def render_record(record: Record[Any], profile: Profile, rival: Record[Any] | None = None) -> str:
    """Return one record: `- content [12]` on one line (compact), `[shr-00012] content` with indented lines (full).

    One that is shown beside a `rival` that contradicts it says so.
    """
    if profile == "compact":
        payload = record.payload
        text = neutral(payload.brief() if isinstance(payload, Note) else payload.text())
        mark = f" (against {rival.number})" if rival else ""
        return f"- {one_line(text)}{mark} [{record.number}]"
    text = neutral(record.payload.text()) + (f"\n(contradicted by [{rival.label}])" if rival else "")
    return f"[{record.label}] " + "\n  ".join(text.split("\n"))


def render(records: Sequence[Record[Any]], profile: Profile, *, core: Collection[str] = ()) -> str:
    """Return the knowledge section of a prompt; empty without records.

    `records` are those to be shown, in order of recall; those whose id is in `core` go first, in order of creation.
    A record is shown once. Of two that contradict each other the older one names the newer.
    """
    unique = {record.id: record for record in records}
    rivals = marks(tuple(unique.values()))

    def one(record: Record[Any]) -> str:
        return render_record(record, profile, rivals.get(record.id))

    first = sorted((r for r in unique.values() if r.id in core), key=creation_order)
    rest = [r for r in unique.values() if r.id not in core]
    if profile == "compact":
        return "\n".join(one(record) for record in (*first, *rest))
    parts: list[str] = []
    rules = [[record for record in group if record.kind != Note.kind] for group in (first, rest)]
    notes = [record for record in (*first, *rest) if record.kind == Note.kind]
    for heading, group in ((CORE_HEADING, rules[0]), (TASK_HEADING, rules[1]), (NOTES_HEADING, notes)):
        parts += [heading, *(one(record) for record in group)] if group else []
    return "\n".join(parts)


def cost(records: Sequence[Record[Any]], profile: Profile, count_tokens: Callable[[str], int]) -> int:
    """Return the tokens of the rendered records, the most that any split into core and recall takes."""
    if not records:
        return 0
    text = render(records, profile)
    return count_tokens(text if profile == "compact" else f"{CORE_HEADING}\n{text}")


def neutral(text: str) -> str:
    """Return learned text without control characters and with chat delimiters (`<|...|>`, `[INST]` ...) broken up."""
    return broken_up(clean_text(text)).replace("|>", "| >")
