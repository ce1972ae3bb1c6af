"""A playbook as Markdown for people: `## SECTION` headings and a list of `- **[label]** content`.

Counters are left out: it is a text to read and to edit. Further lines of a content are indented as the list item is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from memory.records import Record
from playbooks.formats.entry import LABEL, Entry, Format, by_section, make_entry
from playbooks.kinds.bullet import OTHERS, clean_text

TITLE = "# Playbook"

_INDENT = "  "
MARK = r"(?:[-*+]|\d{1,9}[.)])"
"""What an item of a list begins with."""
_ITEM = re.compile(rf"{MARK} (?:\*\*\[({LABEL})\]\*\* ?)?(.*)")


def dump(items: Sequence[Entry | Record[Any]]) -> str:
    """Return the playbook as Markdown."""
    lines = [TITLE]
    for section, group in by_section(items):
        lines += ["", f"## {section}", ""]
        for entry in group:
            first, *rest = entry.bullet.content.split("\n")
            lines.append(f"- **[{entry.label}]** {first}")
            lines += [_INDENT + line if line else "" for line in rest]
    return "\n".join(lines) + "\n"


def load(text: str) -> list[Entry]:
    """Return the entries of a Markdown list, labelled or not. Text that is no list item and no heading is left out.

    An item within an item is an entry of its own, but for labelled ones, which `dump` wrote: there it is content.
    """
    return [
        make_entry({"section": name, "content": "\n".join(content)}, label=label)
        for name, label, content in _read(text)[0]
        if clean_text("\n".join(content))
    ]


def left_out(text: str) -> int:
    """Return how many lines `load` leaves out."""
    return _read(text)[1]


def _read(text: str) -> tuple[list[tuple[str, str, list[str]]], int]:
    """Return the items as (section, label, lines), and how many lines are in none and no heading."""
    found: list[tuple[str, str, list[str]]] = []
    section, blanks, within, lost = OTHERS, 0, False, 0
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        labelled = within and found[-1][1]
        item = _ITEM.fullmatch(line if labelled or not within else line.lstrip(" \t"))
        if item:
            found.append((section, item[1] or "", [item[2]]))
            within, blanks = True, 0
        elif line.startswith(_INDENT) and within:
            found[-1][2].extend([""] * blanks + [line[len(_INDENT) :]])
            blanks = 0
        elif not line.strip():
            blanks += 1
        else:
            heading = line.startswith("#")
            section = line.lstrip("#").strip() if line.startswith("##") else section
            within, blanks, lost = False, 0, lost + (not heading)
    return found, lost


MEMBER = Format(load, dump)
