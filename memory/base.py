"""What every record is built on: immutability, ids that sort by time, and one clock."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict
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
