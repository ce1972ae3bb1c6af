"""The vocabulary of the house: frozen, serialisable records that every package shares. Import them from here.

Data lives here, behaviour does not. A knowledge payload (a bullet, a note, a skill) is defined by the package that owns
its kind and enters through `Payload`; this floor never learns what is inside it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from memory.base import Frozen, new_id, now
from memory.knowledge import FROM_OUTSIDE, JUDGES, RECALLABLE, Payload, Provenance, Record, Status, Trust, UsageCounts
from memory.operations import Commit, DeltaOp, Op, OpResult
from memory.trajectories import (
    Check,
    Injection,
    Insight,
    Outcome,
    Reflection,
    Step,
    StopReason,
    Tag,
    Task,
    ToolCall,
    Trajectory,
    Usage,
)

__all__ = [
    "Check",
    "Commit",
    "DeltaOp",
    "EvalRun",
    "Event",
    "FROM_OUTSIDE",
    "Frozen",
    "Injection",
    "Insight",
    "JUDGES",
    "Op",
    "OpResult",
    "Outcome",
    "Payload",
    "Provenance",
    "RECALLABLE",
    "RecallQuery",
    "Recalled",
    "Record",
    "Reflection",
    "Snapshot",
    "Status",
    "Step",
    "StopReason",
    "Tag",
    "Task",
    "ToolCall",
    "Trajectory",
    "Trust",
    "Usage",
    "UsageCounts",
    "Verdict",
    "new_id",
    "now",
]


class Snapshot(Frozen):
    """A named state of a namespace: sorted (record id, version, content hash), identified by the hash of that list."""

    id: str
    namespace: str
    manifest: tuple[tuple[str, int, str], ...]
    position: int
    """Sequence number of the last journal event it includes: frozen recall reads that position."""
    created_at: datetime = Field(default_factory=now)


class Event(Frozen):
    """One line of the append-only journal."""

    seq: int = 0
    type: str
    namespace: str = ""
    run_id: str = ""
    subject: str = ""
    """Id of what the event is about (record, trajectory, run, snapshot)."""
    data: dict[str, Any] = Field(default_factory=dict)
    created_at: datetime = Field(default_factory=now)


class EvalRun(Frozen):
    """One evaluation: everything needed to name the figure and print it again."""

    id: str = Field(default_factory=new_id)
    snapshot_id: str | None
    policy: str
    policy_version: str
    seed: int
    config_hash: str
    split: str
    passed: dict[str, bool | None]
    """Task id -> pass, fail, or None = missing (counts as failure)."""
    usage: Usage = Usage()
    created_at: datetime = Field(default_factory=now)


class Verdict(Frozen):
    """A gate's decision about a batch of ops."""

    gate: str
    accepted: tuple[str, ...]
    """op_ids that may be applied, with the status that `status` names."""
    rejected: dict[str, str] = Field(default_factory=dict)
    """op_id -> reason."""
    deferred: dict[str, str] = Field(default_factory=dict)
    """op_id -> why it cannot be judged yet. It is not applied; it waits, and is judged with a later batch."""
    cut: dict[str, tuple[tuple[str, int, int], ...]] = Field(default_factory=dict)
    """op_id of what is accepted -> stretches of its text (field, from, to) that are not: none was seen to
    matter. Places and no words, so that a purge of the text leaves none."""
    status: Status = Status.PROVISIONAL
    evidence: dict[str, Any] = Field(default_factory=dict)
    """Pass vectors, statistics, looks: whatever replays the decision."""


class RecallQuery(Frozen):
    """What to look for. An empty result is a valid answer."""

    text: str
    namespace: str = "default"
    kinds: tuple[str, ...] = ()
    k: int = 24
    min_score: float = 0.0
    """Minimum cosine similarity for a record that only the vector side found."""
    token_budget: int | None = None
    exclude_ids: tuple[str, ...] = ()
    """Records that are left out, such as those shown anyway."""
    exclude_task_ids: tuple[str, ...] = ()
    """Records derived from these tasks are left out (leave-one-task-out)."""
    snapshot_id: str | None = None
    """Read that snapshot with exact search instead of the live state."""
    mmr_lambda: float = 0.7
    """1.0 = relevance only, 0.0 = diversity only."""


class Recalled(Frozen):
    """One recalled record with the parts of its score."""

    record: Record[Any]
    rank: int
    scores: dict[str, float]
    """`lexical`, `vector`, `utility`, `rrf`: the parts that were fused."""
    tokens: int
