"""The Curators: lessons in, proposed deltas out. They change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.records import Insight, Record
from playbooks import compact, full
from playbooks.compact import nearest
from policies.protocols import Message, Profile

__all__ = ["curate_messages", "nearest"]


def curate_messages(
    lessons: Insight | Sequence[Insight], candidates: Sequence[Record[Any]], profile: Profile
) -> list[Message]:
    """Return the prompt of the curate role for `profile`. Pure. The compact profile takes one lesson a call."""
    batch = (lessons,) if isinstance(lessons, Insight) else tuple(lessons)
    if profile == "full":
        return full.curate_prompt(batch, candidates)
    (lesson,) = batch
    return compact.curate_prompt(lesson, candidates)
