"""Credit for the skills that an episode was given, as counts. Pure: from episodes, by honest use.

injected  defined when the episode began       cited     called, the stored function and no other of its name
success / failure   given to an episode that ended so
helpful   a call returned, in a success         harmful   called, and no call returned
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.records import Record, Trajectory, UsageCounts
from skills.usage import uses


def skill_counts(trajectory: Trajectory, skills: Sequence[Record[Any]], success: bool | None) -> dict[str, UsageCounts]:
    """Return record id -> counts of one episode."""
    found = uses(trajectory, skills)
    called = {use.record_id for use in found}
    returned = {use.record_id for use in found if use.ok}
    return {
        record.id: UsageCounts(
            injected=1,
            cited=record.id in called,
            success=success is True,
            failure=success is False,
            helpful=success is True and record.id in returned,
            harmful=record.id in called - returned,
        )
        for record in skills
    }


def faults(trajectory: Trajectory, skills: Sequence[Record[Any]]) -> tuple[str, ...]:
    """Return a sentence for each failed use: to be written up as a mistake, whether or not the episode succeeded."""
    labels = {record.id: record.label for record in skills}
    failed = [use for use in uses(trajectory, skills) if not use.ok]
    return tuple(dict.fromkeys(f"skill {use.name} [{labels[use.record_id]}] failed: {use.error}" for use in failed))
