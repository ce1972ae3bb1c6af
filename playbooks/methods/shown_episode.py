"""An episode as the methods' prompts show it: bounded, and no line of it can pass for a mark of the prompt. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Any

from memory.records import Record, Trajectory
from playbooks.kinds.bullet import one_line
from playbooks.notebook.quoting import middle_out, observed
from playbooks.render import neutral

BLOCK_CHARS = 2000


def block(text: str) -> str:
    """Return outside text, indented, its middle left out when it is long."""
    return indent(middle_out(neutral(text), BLOCK_CHARS), "  ")


def line(text: str) -> str:
    """Return learned or outside text on one line."""
    return one_line(neutral(text))


def steps_of(trajectory: Trajectory) -> list[dict[str, str]]:
    """Return each step's action and the world's answer. The outcome is not read."""
    return [{"action": block(step.action), "answer": block(observed(step))} for step in trajectory.steps]


def labelled(records: Sequence[Record[Any]]) -> list[dict[str, str]]:
    """Return the records' labels and texts, a line each."""
    return [{"label": record.label, "text": line(record.payload.text())} for record in records]
