"""Credit for the exemplars that an episode was shown, as counts. Pure: from episodes and what they did.

injected  shown before the task                 cited     followed: a step that worked repeats four words in a row
success / failure   shown in an episode that ended so
helpful   followed, in a success
Never harmful: that a hard task failed says nothing against the tasks beside it. Gates measure harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evolve.episode.trust import runs
from memory.records import Record, Trajectory, UsageCounts


def exemplar_counts(
    trajectory: Trajectory, exemplars: Sequence[Record[Any]], success: bool | None
) -> dict[str, UsageCounts]:
    """Return record id -> counts of one episode."""
    if not exemplars:
        return {}
    done = {run for step in trajectory.steps if step.error is None for run in runs(step.reply or step.action)}
    found: dict[str, UsageCounts] = {}
    for record in exemplars:
        followed = any(run in done for turn in record.payload.turns for run in runs(turn.said))
        found[record.id] = UsageCounts(
            injected=1,
            cited=followed,
            success=success is True,
            failure=success is False,
            helpful=success is True and followed,
        )
    return found
