"""Records, trajectories and a store for the tests of the playbook floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.records import Check, Outcome, Record, Step, Task, Trajectory
from memory.store import Store
from playbooks.kinds.bullet import Bullet
from playbooks.kinds.note import Note

Made = Callable[..., Record[Bullet]]
Played = Callable[..., Trajectory]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evolve.db", embedder=HashingEmbedder(), index="exact") as opened:
        yield opened


@pytest.fixture
def bullet() -> Made:
    """A record of a bullet: `bullet(12, "content", section=..., usage=..., pinned=...)`."""

    def make(number: int, content: str, **fields: Any) -> Record[Bullet]:
        parts = {key: fields.pop(key) for key in ("section", "cue", "action", "origin_query") if key in fields}
        payload = Bullet(content=content, **parts)
        return Record(
            id=f"record-{number}", kind="bullet", number=number, slug=payload.slug(), payload=payload, **fields
        )

    return make


PARTS: dict[str, Any] = {
    "subject": "payments, amounts in the wrong unit",
    "corrected_examples": ("Wrong: amount=12.5; right: amount=1250",),
    "correct_approach": "Give payments.send its amount in cents.",
    "mistake_summary": "The amount was given in dollars, the service counts cents.",
    "strategy": "Read the unit in the error. Convert before the call.",
    "anti_patterns": ("the amount is in cents already",),
}
"""The parts of a well-formed note."""


@pytest.fixture
def note() -> Made:
    """A record of a note: `note(3, subject=..., failure_ids=..., status=..., pinned=...)`."""

    def make(number: int, **fields: Any) -> Record[Note]:
        parts = {key: fields.pop(key) for key in Note.model_fields if key in fields}
        payload = Note(**(PARTS | parts))
        return Record[Note](id=f"record-{number}", kind="note", number=number, slug="note", payload=payload, **fields)

    return make


@pytest.fixture
def played() -> Played:
    """A trajectory: `played(("code", "observation", "error or None"), ..., failed={"name": "detail"})`."""

    def make(*steps: tuple[str, str, str | None], failed: dict[str, str] | None = None, **fields: Any) -> Trajectory:
        checks = tuple(Check(name=name, passed=False, detail=detail) for name, detail in (failed or {}).items())
        outcome = Outcome(success=not checks, reward=float(not checks), checks=checks)
        return Trajectory(
            **{
                "id": "trajectory-1",
                "task": Task(id="task-1", instruction="pay Rodor 12.50 for lunch"),
                "steps": tuple(
                    Step(index=at, action=action, observation=seen, error=error)
                    for at, (action, seen, error) in enumerate(steps)
                ),
                "outcome": outcome,
                **fields,
            }
        )

    return make
