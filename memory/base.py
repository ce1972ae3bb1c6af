"""Base of every record: immutability, ids that sort by time, one clock, one way to say what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, ValidationError
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


def first_error(invalid: ValidationError, whole: str) -> str:
    """Return where values were wrong first, and how: `key.key: what`; `whole` names what was wrong as a whole."""
    first = invalid.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"
