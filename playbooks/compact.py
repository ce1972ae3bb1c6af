"""The compact dialect of the two roles: pure functions that build the pocket model's prompts and training replies.

Nothing here calls a model. The corpus generator and the live roles use the same functions, so that what the model is
trained on is what it meets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from memory.records import Check, Insight, Outcome, Record, Step, Trajectory
from playbooks import prompts
from playbooks.kinds.bullet import one_line
from playbooks.render import neutral, render_record
from policies.protocols import Message
from policies.schemas import most_chars, most_items
from policies.templates import render_turns

OBSERVATION_CHARS = 200
_CITATION = re.compile(r"\s*\[(?:\d{1,9}|\?)\]?\s*$")
"""The number of the rule that a lesson was copied from: no part of the lesson."""


def listed(value: Any) -> list[Any]:
    """Return what a model gave where a list was wanted as a list: absent is empty, a single thing is a list of one."""
    items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    return [item for item in items if item is not None]


def sound(items: list[Any], fits: Callable[[Any], bool]) -> list[Any]:
    """Return the items that fit: one bad item does not spoil the others. All of them when none fits, to be refused."""
    return [item for item in items if fits(item)] or items


class CompactReflection(BaseModel):
    """What the pocket model answers to `reflect`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    insights: Annotated[tuple[Annotated[str, most_chars(160)], ...], most_items(3)] = ()
    harmful: tuple[int, ...] = ()

    @field_validator("insights", mode="before")
    @classmethod
    def _sentences(cls, value: Any) -> Any:
        texts = [item.get("content") or "" if isinstance(item, dict) else item for item in listed(value)]
        texts = [_CITATION.sub("", text) if isinstance(text, str) else text for text in texts]
        return sound(texts, lambda text: isinstance(text, str))

    @field_validator("harmful", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        return [int(number) for item in listed(value) for number in re.findall(r"\d{1,9}", str(item))[-1:]]


class CompactDecision(BaseModel):
    """What the pocket model answers to `curate`: the lesson is new, already known, or replaces the target's content."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    op: Literal["ADD", "NONE", "EDIT"]
    target: int | None = None

    @field_validator("op", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.strip().upper() if isinstance(value, str) else value

    @field_validator("target", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = re.fullmatch(r"(?:.*\[)?[a-z_-]*(\d{1,9})\]?", value.strip())
        return int(found[1]) if found else None


def failed_checks(outcome: Outcome | None) -> tuple[Check, ...]:
    """Return the checks that failed; a missing or check-less failure counts as one failed check."""
    if outcome is None:
        return (Check(name="outcome", passed=False, detail="missing"),)
    if outcome.success:
        return ()
    failed = tuple(check for check in outcome.checks if not check.passed)
    return failed or (Check(name="outcome", passed=False, detail="failed"),)


def salient_steps(trajectory: Trajectory, *, label_free: bool = False) -> tuple[Step, ...]:
    """Return the steps worth reflecting on, in order: each that errored and the one after it, and the last step before
    grading when a check failed.

    With `label_free` the outcome is not read, so the last step is there only for its own error.
    """
    steps = trajectory.steps
    chosen = {at + offset for at, step in enumerate(steps) if step.error is not None for offset in (0, 1)}
    if not label_free and failed_checks(trajectory.outcome):
        chosen.add(len(steps) - 1)
    return tuple(step for at, step in enumerate(steps) if at in chosen)


def shown_observation(step: Step) -> str:
    """Return a step's observation on one line, cut to 200 characters; its error text where the cut would hide it."""
    text = _plain(step.observation)
    error = _plain(step.error or "")
    if error[:OBSERVATION_CHARS] not in text[:OBSERVATION_CHARS]:
        text = error
    return text[:OBSERVATION_CHARS]


def reflect_prompt(
    trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
) -> list[Message]:
    """Return the one user message of the `reflect` role. `injected` are the records the trajectory was shown."""
    failed = () if label_free else failed_checks(trajectory.outcome)
    verdict = [_plain(f"fail: {check.name}: {check.detail}") for check in failed]
    if not label_free and not failed:
        verdict = ["ok"]
    return render_turns(
        prompts,
        "reflect_compact",
        task=_plain(trajectory.instruction),
        steps=[
            {"action": neutral(step.action), "observation": shown_observation(step)}
            for step in salient_steps(trajectory, label_free=label_free)
        ],
        verdict=verdict,
        rules=_rules(injected),
    )


def reflect_reply(insights: Iterable[str], harmful: Iterable[tuple[str, int]] = ()) -> str:
    """Return the assistant's side of `reflect`: one line of JSON. `harmful` are rules that were shown, with number."""
    return _json(
        {
            "insights": [one_line(text) for text in insights],
            "harmful": [f"{text} [{number}]" for text, number in harmful],
        }
    )


def curate_prompt(insight: Insight, candidates: Sequence[Record[Any]]) -> list[Message]:
    """Return the one user message of the `curate` role. `candidates` is what `nearest` chose."""
    return render_turns(prompts, "curate_compact", rules=_rules(candidates), lesson=_plain(insight.content))


def curate_reply(op: Literal["ADD", "NONE", "EDIT"], lesson: str, said: str, target: int | None = None) -> str:
    """Return the assistant's side of `curate`: one line of JSON.

    `said` is the known rule about the same thing and `target` its number; without one, the lesson itself. The lesson
    stands beside it, so that deciding is comparing.
    """
    return _json({"target": f"{said} [{'?' if target is None else target}]", "lesson": lesson, "op": op})


def _rules(records: Sequence[Record[Any]]) -> list[str]:
    return [render_record(record, "compact") for record in records]


def _plain(text: str) -> str:
    return one_line(neutral(text))


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
