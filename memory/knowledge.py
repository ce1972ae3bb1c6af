"""Records of what was learned: the envelope around every piece of knowledge, whatever its kind."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from pydantic import Field

from memory.base import Frozen, new_id, now

_DIGITS = 19
"""A number of so many digits is no record's."""


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
    TAINTED = "tainted"
    """Written from an episode by somebody who was shown text that strangers can have written."""
    IMPORTED = "imported"
    """Came from outside: untrusted until a gate passes it."""
    QUOTED = "quoted"
    """Repeats what a tool or a task said in an episode: whoever can write there wrote it."""

    def reaches(self, floor: Trust) -> bool:
        """Tell whether this is at least as strong as `floor`."""
        ladder = list(Trust)
        return ladder.index(self) <= ladder.index(floor)


FROM_OUTSIDE = frozenset({Trust.IMPORTED, Trust.QUOTED})
"""What somebody outside wrote or said; what is only tainted was written by our own author."""


class Provenance(Frozen):
    """Where a record came from."""

    trust: Trust = Trust.SELF_JUDGED
    trajectory_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    run_id: str = ""
    author: str = ""
    """Model, reflector, import format or person."""
    source: str = ""


JUDGES = frozenset({"helpful", "harmful", "success", "failure"})
"""Counters that speak for or against a record."""


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

    @abstractmethod
    def text(self) -> str:
        """Return the text that is shown, searched by words and counted in tokens."""

    def key(self) -> str:
        """Return the text that is embedded. Defaults to `text()`."""
        return self.text()

    def compared(self) -> str:
        """Return the text by which it says the same as another of its kind, or nearly. Defaults to `text()`."""
        return self.text()

    def unique(self) -> str:
        """Return the name that at most one record in use of a namespace and kind may have; empty = any number may."""
        return ""

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


def number_of(name: str) -> int | None:
    """Return the number that a name gives: `12`, or a label's (`shr-00012`); None where it has a namespace (`/`)."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < _DIGITS and "/" not in name else None


def has_prefix(name: str, prefixes: Iterable[str]) -> bool:
    """Tell whether a name that gives a number is no other record's label: `12`, or with one of these (`shr-12`).

    In any case of letters: a model writes labels as it likes.
    """
    prefix, hyphen, _ = name.rpartition("-")
    return not hyphen or prefix.casefold() in {each.casefold() for each in prefixes}
