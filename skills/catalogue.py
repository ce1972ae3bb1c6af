"""The skills that an episode is shown, as its prompt lists them: one line each, the body on demand. Pure.

A line is name, signature and description, the description on one line and without marks of a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.records import Record
from skills.record import Skill


def catalogue(records: Sequence[Record[Skill]]) -> str:
    """Return a line `- name(signature): description` for each skill; empty without any."""
    return "\n".join(f"- {' '.join(record.payload.text().split())}" for record in records)
