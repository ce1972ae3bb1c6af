"""Skills, their records and trajectories for the tests of the skill floor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory.records import Outcome, Record, Step, Task, Trajectory
from skills.record import Skill

Kept = Callable[..., Record[Skill]]
Acted = Callable[..., Trajectory]


def function(name: str, *calls: str) -> str:
    """Return the source of a typed function that calls others."""
    total = " + ".join(["x", *(f"{call}(x)" for call in calls)])
    return f'def {name}(x: int) -> int:\n    """Add up as {name} does."""\n    return {total}\n'


@pytest.fixture
def skill() -> Kept:
    """A record of a skill: `skill(3, "name", "callee", ..., source=..., origin=..., status=...)`."""

    def make(number: int, name: str = "", *calls: str, **fields: Any) -> Record[Skill]:
        parts = {key: fields.pop(key) for key in Skill.model_fields if key in fields}
        payload = Skill(**({"source": function(name, *calls), "requires": calls} | parts))
        return Record[Skill](
            **({"id": f"record-{number}", "kind": "skill", "number": number, "slug": "skill"} | fields), payload=payload
        )

    return make


@pytest.fixture
def acted() -> Acted:
    """A trajectory: `acted("code", ("code", "error"), ..., success=False, task=...)`."""

    def make(*actions: str | tuple[str, str | None], success: bool = True, **fields: Any) -> Trajectory:
        pairs = [(action, None) if isinstance(action, str) else action for action in actions]
        steps = tuple(Step(index=at, action=code, error=error) for at, (code, error) in enumerate(pairs))
        task = Task(id="task-1", instruction="pay Rodor 12.50 for lunch", scenario="pay")
        outcome = Outcome(success=success, reward=float(success))
        return Trajectory(**({"id": "trajectory-1", "task": task, "steps": steps, "outcome": outcome} | fields))

    return make
