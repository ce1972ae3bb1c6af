"""Cuts texts out of stored JSON bodies, and reduces an episode to its figures. Pure; `memory.forget` decides what."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from memory.content import canonical
from memory.trajectories import Outcome, Step, Task, Trajectory

ERASED = "[erased]"
"""Stands where a forgotten text stood."""
ERASED_PAYLOAD = {"erased": True}
"""Payload of a proposed change whose text was forgotten; no kind of knowledge accepts it."""
_TOKENS = ("token_ids", "prompt_token_ids", "logprobs")
"""Parts of a model's reply that spell its text."""
_DEEPEST = 4
"""Strings of JSON inside each other that a text is looked for in."""
_FIGURES = (
    "id", "stop", "injected", "forgotten", "snapshot_id", "run_id", "arm", "policy", "policy_version", "seed", "usage",
    "seconds", "created_at",
)  # fmt: skip
"""Fields of an episode that say nothing of its content. A field that is not named here is erased."""


def spellings(text: str) -> tuple[str, ...]:
    """Return a text as it stands in a JSON body: in a string, in JSON that is itself kept in a string, and so on.

    JSON inside may write letters as they are, or as ASCII (`\\u00fc`).
    """
    return tuple(form for level in _levels(text)[1:] for form in level)


def _levels(text: str) -> list[list[str]]:
    """Return a text itself, its forms in JSON, its forms in JSON that is kept in a string of JSON, and so on."""
    found = [[text]]
    for _ in range(_DEEPEST):
        ways = ((form, ascii_alone) for form in found[-1] for ascii_alone in (False, True))
        found.append(list(dict.fromkeys(json.dumps(form, ensure_ascii=way)[1:-1] for form, way in ways)))
    return found


def without(body: str, texts: Collection[str]) -> str | None:
    """Return a JSON body with `ERASED` in the place of each text; None where one cannot be cut out cleanly."""
    forms = {form for text in texts for level in _levels(text)[:-1] for form in level}
    ordered = sorted(forms, key=len, reverse=True)

    def cut(leaf: str) -> str:
        for form in ordered:
            leaf = leaf.replace(form, ERASED)
        return leaf

    made = canonical(_mapped(json.loads(body), cut))
    return None if any(form in made for text in texts for form in spellings(text)) else made


def _mapped(value: Any, cut: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list):
        return [_mapped(item, cut) for item in value]
    if not isinstance(value, dict):
        return value
    made = {cut(key): _mapped(item, cut) for key, item in value.items()}
    if made == value:
        return value
    if "op_id" in made and made.get("payload") != value.get("payload"):
        made["payload"] = ERASED_PAYLOAD
    return made | {name: None for name in _TOKENS if name in made}


def figures_of(body: str) -> str:
    """Return an episode's body with its figures alone: ids, arm, outcome, number of steps, usage, times; no content."""
    full = Trajectory.model_validate_json(body)
    task = full.task
    kept = {name: getattr(full, name) for name in _FIGURES}
    left = Trajectory(
        **kept,
        task=Task(
            id=task.id, instruction=ERASED, environment=task.environment, scenario=task.scenario, split=task.split
        ),
        steps=tuple(
            Step(index=s.index, action="", omitted=s.omitted, usage=s.usage, seconds=s.seconds) for s in full.steps
        ),
        outcome=full.outcome and Outcome(success=full.outcome.success, reward=full.outcome.reward),
        error=full.error and ERASED,
        erased=True,
    )
    return canonical(left.model_dump(mode="json"))
