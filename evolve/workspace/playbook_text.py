"""Records in use, as printed text."""

from __future__ import annotations

from evolve.workspace.editing import KnowledgeRow
from evolve.workspace.plain_rows import Rows


class Playbook(Rows[KnowledgeRow]):
    """The records in use; as text a line for each, or a sentence why there is none."""

    note: str
    """What the latest task came to; empty before one was finished."""

    def __new__(cls, rows: Rows[KnowledgeRow], note: str = "") -> Playbook:
        made = super().__new__(cls, rows)
        made.note = note
        return made

    def __str__(self) -> str:
        lines = [f"[{each.label}] {each.content}" for each in self]
        return "\n".join(lines) or self.note or "nothing is known yet: no task of this session is finished"
