"""The official ACE text: `## SECTION` headers, one `[slug-00001] helpful=H harmful=M :: content` per bullet.

Content with several lines goes on in lines indented by two spaces, so that no line of it can pass for a header or for
another bullet. Reading is tolerant: bullets without the counters (`[slug-00001] content`) or without an id, text before
the first header, any slug.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from memory.records import Record, UsageCounts
from playbooks.formats.entry import LABEL, Entry, Format, by_section, make_entry
from playbooks.kinds.bullet import OTHERS, clean_text

_INDENT = "  "
_LINE = re.compile(rf"\[\s*({LABEL})\s*\]\s*(.*)")
_COUNTS = re.compile(r"helpful=(\d{1,9})\s+harmful=(\d{1,9})\s*::\s*(.*)", re.IGNORECASE)


def dump(items: Sequence[Entry | Record[Any]]) -> str:
    """Return the playbook as ACE text, with counters (finance style)."""
    lines: list[str] = []
    for section, group in by_section(items):
        lines += ["", f"## {section}"] if lines else [f"## {section}"]
        for entry in group:
            lines += _lines(entry)
    return "\n".join(lines) + "\n" if lines else ""


def load(text: str) -> list[Entry]:
    """Return the entries of an ACE text, with or without counters, in order. Never raises on text."""
    reader = _Reader()
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        reader.read(line)
    return reader.finish()


def _lines(entry: Entry) -> list[str]:
    head = f"[{entry.label}] helpful={entry.usage.helpful} harmful={entry.usage.harmful} ::"
    first, *rest = entry.bullet.content.split("\n")
    return [f"{head} {first}" if first else head, *(_INDENT + line if line else "" for line in rest)]


class _Reader:
    """Takes lines, gives entries."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._section = OTHERS
        self._label = ""
        self._usage = UsageCounts()
        self._content: list[str] | None = None
        self._blanks = 0

    def read(self, line: str) -> None:
        if line.startswith(_INDENT) and self._content is not None:
            self._content += [""] * self._blanks + [line[len(_INDENT) :]]
            self._blanks = 0
        elif not line.strip():
            self._blanks += 1
        elif line.startswith("##"):
            self._close()
            self._section = line.lstrip("#").strip()
        else:
            self._close()
            self._open(line.lstrip())  # blanks at its end are content where the next line goes on

    def finish(self) -> list[Entry]:
        self._close()
        return self._entries

    def _open(self, line: str) -> None:
        labelled = _LINE.fullmatch(line)
        self._label, text = labelled.groups() if labelled else ("", line.lstrip("-* "))
        counted = _COUNTS.fullmatch(text)
        self._usage = UsageCounts()
        if counted:
            self._usage = UsageCounts(helpful=int(counted[1]), harmful=int(counted[2]))
            text = counted[3]
        self._content = [text]

    def _close(self) -> None:
        content = "\n".join(self._content or ())
        if clean_text(content):
            fields = {"section": self._section, "content": content}
            self._entries.append(make_entry(fields, label=self._label, usage=self._usage))
        self._content, self._blanks = None, 0


MEMBER = Format(load, dump)
