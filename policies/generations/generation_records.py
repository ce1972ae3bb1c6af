"""Records of the registry: a generation, and what happened to one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from memory.records import Frozen
from policies.generations.base_model import Base

State = Literal["candidate", "canary", "live", "retired"]
"""`candidate`: published. `canary`: passed its canary, may go live. `live`: answers new requests. `retired`: did."""


class Generation(Frozen):
    """One version of the policy. Number 0 is the base model itself and has no adapter."""

    number: int
    version: str
    adapter: Path | None
    """Absolute directory of the adapter, or of a whole model where all weights were trained."""
    sha256: str
    """Of its configuration and weights; empty for the base."""
    base: Base
    parent: str | None
    """Version that its training began from."""
    metrics: dict[str, Any]
    config: dict[str, Any]
    """Settings of the training that made it."""
    state: State
    before: str | None
    """What was live when it was promoted: where a rollback goes."""
    created_at: datetime


class Change(Frozen):
    """One entry of the registry's append-only history."""

    seq: int
    type: str
    """`published`, `accepted`, `refused`, `promoted`, `retired`, `rolled_back`, `restored`, `measured`."""
    version: str
    state: State
    """Afterwards."""
    reason: str
    data: dict[str, Any]
    created_at: datetime
