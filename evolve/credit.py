"""Counts what became of the records that were shown: pure, from episodes and reflections to TAG ops.

injected  shown in a prompt                     cited     named in a reply
success / failure   shown in an episode that ended so (nobody knows in label-free mode without a judge)
helpful   cited in a success, where the reflector gave it no tag (its tags are counted by the curator's own ops)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.records import DeltaOp, Op, Record, Tag, Trajectory, UsageCounts
from playbooks.citations import cited


@dataclass(frozen=True)
class Credited:
    """One episode with what is needed to credit its records."""

    trajectory: Trajectory
    shown: Sequence[Record[Any]]
    success: bool | None
    tags: Mapping[str, Tag]


def tag_ops(episodes: Sequence[Credited], subject: str) -> tuple[DeltaOp, ...]:
    """Return one TAG per record that was shown in a batch; `subject` makes the op ids those of the batch."""
    totals: dict[str, UsageCounts] = {}
    kinds: dict[str, str] = {}
    for episode in episodes:
        for record in episode.shown:
            kinds[record.id] = record.kind
            totals[record.id] = totals.get(record.id, UsageCounts())
        for record_id, counts in _counts(episode).items():
            totals[record_id] = totals[record_id] + counts
    return tuple(
        DeltaOp(op=Op.TAG, op_id=f"{subject}/tag/{key}", kind=kinds[key], target_id=key, usage=counts)
        for key, counts in totals.items()
    )


def _counts(episode: Credited) -> dict[str, UsageCounts]:
    replies = "\n".join(step.reply or step.action for step in episode.trajectory.steps)
    named = {record.id for record in cited(replies, episode.shown)}
    counts: dict[str, UsageCounts] = {}
    for record in episode.shown:
        counts[record.id] = UsageCounts(
            injected=1,
            cited=record.id in named,
            success=episode.success is True,
            failure=episode.success is False,
            helpful=episode.success is True and record.id in named and record.id not in episode.tags,
        )
    return counts
