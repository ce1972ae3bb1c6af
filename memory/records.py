"""The vocabulary of the house: frozen, serialisable records that every package shares.

Data lives here, behaviour does not. A knowledge payload (a bullet, a note, a skill) is defined by the package that owns
its kind and enters through `Payload`; this module never learns what is inside it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from ulid import ULID


def new_id() -> str:
    """Return a fresh ULID: sortable by time, never reused."""
    return str(ULID())


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class Frozen(BaseModel):
    """Base of every record: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- what happened -------------------------------------------------------------------------------


class Task(Frozen):
    """One job for the agent. `scenario` groups variants of one goal; splits never share a scenario."""

    id: str
    instruction: str
    environment: str = ""
    scenario: str = ""
    split: str = "train"
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Public facts about the task (family, difficulty). Never the answer."""


class ToolCall(Frozen):
    """A native tool call made by a policy."""

    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Usage(Frozen):
    """What a model call cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    calls: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Step(Frozen):
    """One action and what came back."""

    index: int
    action: str
    observation: str = ""
    error: str | None = None
    """The environment's error text, when the action failed."""
    reply: str = ""
    """The policy's whole reply, where it says more than `action` (thoughts, a fenced block)."""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    seconds: float = 0.0


class Check(Frozen):
    """One graded condition of a task."""

    name: str
    passed: bool
    detail: str = ""


class Outcome(Frozen):
    """How an episode was graded. `reward` is in [0, 1]; `success` is the task goal."""

    success: bool
    reward: float
    checks: tuple[Check, ...] = ()


class Injection(Frozen):
    """One record that was put into a prompt, and why it was chosen."""

    record_id: str
    version: int
    label: str
    rank: int
    scores: dict[str, float] = Field(default_factory=dict)
    core: bool = False


class StopReason(StrEnum):
    """Why an episode ended."""

    DONE = "done"
    """The agent said it was finished, or the environment did."""
    MAX_STEPS = "max_steps"
    """The step limit was reached."""
    BUDGET = "budget"
    """A call, token, money or time budget ran out."""
    ERROR = "error"
    """The policy or the environment failed: `Trajectory.error` says how."""


class Trajectory(Frozen):
    """One episode from first prompt to grade. A failed one is data, not a crash."""

    id: str = Field(default_factory=new_id)
    task: Task
    steps: tuple[Step, ...] = ()
    outcome: Outcome | None = None
    """None = not graded (missing). Missing counts as failure in every rate."""
    stop: StopReason = StopReason.DONE
    error: str | None = None
    injected: tuple[Injection, ...] = ()
    snapshot_id: str | None = None
    run_id: str = ""
    arm: str = "main"
    """`main`, or the name of the control this episode belongs to (`no_memory`, `aa`, ...)."""
    policy: str = ""
    policy_version: str = ""
    seed: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    created_at: datetime = Field(default_factory=now)

    @property
    def success(self) -> bool:
        """True only for a graded success."""
        return self.outcome is not None and self.outcome.success


# --- what was learned ----------------------------------------------------------------------------

Tag = Literal["helpful", "harmful", "neutral"]


class Insight(Frozen):
    """One lesson proposed by a reflector, not yet knowledge."""

    content: str
    section: str = ""
    cue: str = ""
    """When it applies, in machine-readable form where the reflector has one (e.g. the failing call)."""
    action: str = ""
    """What to do then, likewise (e.g. the call to make before)."""


class Reflection(Frozen):
    """What a reflector made of one trajectory. `parsed` is False when only `raw` could be kept."""

    id: str = Field(default_factory=new_id)
    trajectory_id: str
    task_id: str
    root_cause: str = ""
    insights: tuple[Insight, ...] = ()
    tags: dict[str, Tag] = Field(default_factory=dict)
    """Record id -> tag. Only records that were injected can be tagged."""
    raw: str = ""
    parsed: bool = True
    author: str = ""
    usage: Usage = Usage()
    created_at: datetime = Field(default_factory=now)


class Status(StrEnum):
    """Life of a record."""

    CANDIDATE = "candidate"
    """Proposed, waiting for review or a gate; never recalled."""
    PROVISIONAL = "provisional"
    """Passed the cheap gates; recalled, not yet measured."""
    ACTIVE = "active"
    """A gate measured that it helps."""
    SUPERSEDED = "superseded"
    """Replaced by another record; kept for history."""
    RETIRED = "retired"
    """Removed by rule, curator or operator; can be restored."""
    REJECTED = "rejected"
    """A gate or a person said no."""


RECALLABLE = frozenset({Status.PROVISIONAL, Status.ACTIVE})


class Trust(StrEnum):
    """Where a record's authority comes from, strongest first."""

    OPERATOR = "operator"
    VERIFIED = "verified"
    """Derived from a graded outcome."""
    SELF_JUDGED = "self_judged"
    """Derived without any ground truth."""
    IMPORTED = "imported"
    """Came from outside: untrusted until a gate passes it."""


class Provenance(Frozen):
    """Where a record came from."""

    trust: Trust = Trust.SELF_JUDGED
    trajectory_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    run_id: str = ""
    author: str = ""
    """Model, reflector, import format or person."""
    source: str = ""


class UsageCounts(Frozen):
    """How often a record was shown and what came of it. Changed by TAG only; never part of the content hash."""

    injected: int = 0
    cited: int = 0
    helpful: int = 0
    harmful: int = 0
    neutral: int = 0
    success: int = 0
    failure: int = 0

    def __add__(self, other: UsageCounts) -> UsageCounts:
        return UsageCounts(**{name: getattr(self, name) + getattr(other, name) for name in UsageCounts.model_fields})

    @property
    def utility(self) -> float:
        """Laplace estimate (s + 1) / (n + 2) over helpful against harmful (arXiv 2510.16079)."""
        return (self.helpful + 1) / (self.helpful + self.harmful + 2)


class Payload(Frozen):
    """What one kind of knowledge holds. Subclass it, set `kind`, and register it with `memory.kinds.register`."""

    kind: ClassVar[str] = ""

    def text(self) -> str:
        """Return the text that is shown, searched by words and counted in tokens."""
        raise NotImplementedError

    def key(self) -> str:
        """Return the text that is embedded. Defaults to `text()`."""
        return self.text()

    def slug(self) -> str:
        """Return the prefix of the record's label (`shr` in `shr-00012`)."""
        return self.kind


P = TypeVar("P", bound=Payload)


class Record(Frozen, Generic[P]):
    """One piece of knowledge in its envelope: identity, version, status, origin, usage."""

    id: str = Field(default_factory=new_id)
    kind: str
    schema_version: int = 1
    namespace: str = "default"
    status: Status = Status.PROVISIONAL
    version: int = 1
    number: int = 0
    """Counts up per namespace, given by the journal, never reused: the short id that the policy cites."""
    slug: str = ""
    pinned: bool = False
    supersedes: tuple[str, ...] = ()
    content_hash: str = ""
    payload: P
    provenance: Provenance = Provenance()
    usage: UsageCounts = UsageCounts()
    created_at: datetime = Field(default_factory=now)
    updated_at: datetime = Field(default_factory=now)

    @property
    def label(self) -> str:
        """Return the stable citable id, e.g. `shr-00012`."""
        return f"{self.slug or self.kind}-{self.number:05d}"


class Op(StrEnum):
    """The delta vocabulary: every change of knowledge is one of these."""

    ADD = "ADD"
    EDIT = "EDIT"
    """New payload for the same record: next version."""
    TAG = "TAG"
    """Usage counters only: no new version, no new hash."""
    MERGE = "MERGE"
    """A new record that supersedes all its parents."""
    SUPERSEDE = "SUPERSEDE"
    """A new record that replaces one old one."""
    REMOVE = "REMOVE"
    RESTORE = "RESTORE"


_NEEDS: dict[Op, tuple[str, ...]] = {
    Op.ADD: ("payload",),
    Op.EDIT: ("target_id", "payload"),
    Op.TAG: ("target_id", "usage"),
    Op.MERGE: ("parent_ids", "payload"),
    Op.SUPERSEDE: ("target_id", "payload"),
    Op.REMOVE: ("target_id",),
    Op.RESTORE: ("target_id",),
}


class DeltaOp(Frozen):
    """One proposed change. `op_id` makes it idempotent: applying it twice changes nothing the second time."""

    op: Op
    op_id: str = Field(default_factory=new_id)
    kind: str = "bullet"
    target_id: str | None = None
    parent_ids: tuple[str, ...] = ()
    payload: dict[str, Any] | None = None
    usage: UsageCounts | None = None
    base_version: int | None = None
    """Version of the target this op was written against; a stale EDIT is refused."""
    status: Status = Status.PROVISIONAL
    """Status of the record that ADD, MERGE or SUPERSEDE creates; the gate decides it."""
    pinned: bool = False
    provenance: Provenance = Provenance()
    reason: str = ""

    @model_validator(mode="after")
    def _required_fields(self) -> DeltaOp:
        missing = [name for name in _NEEDS[self.op] if not getattr(self, name)]
        if missing:
            raise ValueError(f"{self.op} needs {', '.join(missing)}; got none")
        return self


class OpResult(Frozen):
    """What became of one DeltaOp."""

    op_id: str
    applied: bool
    record_id: str | None = None
    version: int | None = None
    reason: str = ""
    """Why it was refused, or `duplicate` when this op_id had been applied before."""


class Commit(Frozen):
    """The result of one transaction on a namespace."""

    namespace: str
    version: int
    """Namespace version after the commit."""
    results: tuple[OpResult, ...]

    @property
    def applied(self) -> tuple[OpResult, ...]:
        return tuple(r for r in self.results if r.applied)

    @property
    def refused(self) -> tuple[OpResult, ...]:
        return tuple(r for r in self.results if not r.applied)


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
