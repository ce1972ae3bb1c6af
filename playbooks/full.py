"""The full profile of the two roles: prompts for general models and the lenient shape of their answers.

Pure: nothing here calls a model. Learned and observed text enters the templates as values only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import indent
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from memory.records import Insight, Record, Step, Trajectory
from playbooks import prompts
from playbooks.compact import failed_checks, listed, sound
from playbooks.kinds.bullet import SECTIONS, match_section, one_line
from playbooks.notebook.quoting import middle_out
from playbooks.render import neutral
from policies.protocols import Message
from policies.schemas import most_chars, most_items
from policies.templates import render_turns

OBSERVATION_CHARS = 2000
_REFERENCES = ("id", "bullet_id", "bullet", "rule")
"""What models call the reference of a tag."""


class _Lenient(BaseModel):
    """A model's answer: fields it invented are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Lesson(_Lenient):
    """One rule proposed by the reflector."""

    content: Annotated[str, most_chars(600)]
    section: Annotated[str, most_chars(60)] = ""
    cue: Annotated[str, most_chars(100)] = ""
    action: Annotated[str, most_chars(150)] = ""

    @field_validator("section", "cue", "action", mode="before")
    @classmethod
    def _absent(cls, value: Any) -> Any:
        return "" if value is None else value


class TagOf(_Lenient):
    """A reflector's verdict on one rule that was shown."""

    id: Annotated[str, most_chars(16)] = Field(validation_alias=AliasChoices(*_REFERENCES))
    tag: Annotated[str, most_chars(8)] = "neutral"

    @field_validator("id", "tag", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value


class FullReflection(_Lenient):
    """What a general model answers to `reflect`."""

    reasoning: str = ""
    root_cause: Annotated[str, most_chars(200)] = Field(
        "", validation_alias=AliasChoices("root_cause", "root_cause_analysis")
    )
    correct_approach: Annotated[str, most_chars(300)] = ""
    insights: tuple[Lesson, ...] = Field((), validation_alias=AliasChoices("insights", "key_insights", "key_insight"))
    bullet_tags: Annotated[tuple[TagOf, ...], most_items(16)] = Field(
        (), validation_alias=AliasChoices("bullet_tags", "tags")
    )

    @field_validator("insights", mode="before")
    @classmethod
    def _lessons(cls, value: Any) -> Any:
        items = [{"content": item} if isinstance(item, str) else item for item in listed(value) if item]
        return sound(items, lambda item: isinstance(item, dict) and isinstance(item.get("content"), str | int | list))

    @field_validator("bullet_tags", mode="before")
    @classmethod
    def _tags(cls, value: Any) -> Any:
        if isinstance(value, dict) and not set(_REFERENCES) & set(value):
            value = [
                {"id": one, "tag": name} if isinstance(said, list) else {"id": name, "tag": said}
                for name, said in value.items()
                for one in listed(said)
            ]
        return list(filter(_is_tag, listed(value)))

    @field_validator("reasoning", "root_cause", "correct_approach", mode="before")
    @classmethod
    def _absent(cls, value: Any) -> Any:
        return "" if value is None else value


def _is_tag(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    reference = next((item[name] for name in _REFERENCES if name in item), None)
    return isinstance(reference, str | int) and isinstance(item.get("tag", ""), str)


class Operation(_Lenient):
    """One change proposed by the curator. `lesson` counts from 1 in the order shown."""

    type: Annotated[str, most_chars(6)]
    lesson: int | None = None
    section: Annotated[str, most_chars(60)] = ""
    content: Annotated[str, most_chars(500)] = ""
    target: Annotated[str, most_chars(16)] = Field("", validation_alias=AliasChoices("target", "bullet_id", "id"))
    targets: Annotated[tuple[Annotated[str, most_chars(16)], ...], most_items(3)] = ()
    reason: Annotated[str, most_chars(40)] = ""

    @field_validator("section", "content", "target", "reason", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return "" if value is None else str(value) if isinstance(value, int) else value

    @field_validator("lesson", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        found = re.search(r"\d{1,9}", str(value))
        return int(found[0]) if found else None

    @field_validator("targets", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        return [str(item) if isinstance(item, int) else item for item in listed(value)]


class FullCuration(_Lenient):
    """What a general model answers to `curate`."""

    reasoning: Annotated[str, most_chars(300)] = ""
    operations: Annotated[tuple[Operation, ...], most_items(10)]

    @field_validator("operations", mode="before")
    @classmethod
    def _usable(cls, value: Any) -> Any:
        return sound(listed(value), lambda item: isinstance(item, dict) and isinstance(item.get("type"), str))

    @field_validator("reasoning", mode="before")
    @classmethod
    def _absent(cls, value: Any) -> Any:
        return "" if value is None else value


def reflect_prompt(
    trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
) -> list[Message]:
    """Return the messages of the reflector, the record last. With `label_free` the outcome is never read."""
    return render_turns(
        prompts,
        "reflect",
        task=_block(trajectory.instruction),
        steps=[_step(step) for step in trajectory.steps],
        label_free=label_free,
        verdict=() if label_free else _verdict(trajectory),
        rules=_labelled(injected),
        sections=tuple(SECTIONS),
    )


def curate_prompt(insights: Sequence[Insight], candidates: Sequence[Record[Any]]) -> list[Message]:
    """Return the messages of the curator, rules and lessons last. It may refer to `candidates`, which exist."""
    groups: dict[str, list[Record[Any]]] = {}
    for record in sorted(candidates, key=lambda r: (r.number, r.id)):
        groups.setdefault(getattr(record.payload, "section", record.kind), []).append(record)
    return render_turns(
        prompts,
        "curate",
        groups=[{"section": one_line(name), "rules": _labelled(records)} for name, records in groups.items()],
        lessons=[
            {"section": match_section(insight.section) or "no section", "content": one_line(neutral(insight.content))}
            for insight in insights
        ],
        sections=tuple(SECTIONS),
    )


def _step(step: Step) -> dict[str, object]:
    """Return a step; its error apart, unless what is shown of the observation holds it."""
    seen, error = _cut(step.observation), _cut(step.error or "")
    return {
        "index": step.index,
        "action": _block(step.action),
        "observation": indent(seen, "  "),
        "error": "" if error in seen else indent(error, "  "),
    }


def _labelled(records: Sequence[Record[Any]]) -> list[dict[str, str]]:
    return [{"label": record.label, "content": one_line(neutral(record.payload.text()))} for record in records]


def _verdict(trajectory: Trajectory) -> list[str]:
    failed = failed_checks(trajectory.outcome)
    if not failed:
        return ["The task was solved."]
    lines = [f"failed check {check.name}: {check.detail}" for check in failed]
    return ["The task was not solved.", *(one_line(neutral(line)) for line in lines)]


def _block(text: str) -> str:
    """Return outside text, cut, indented so that no line of it can pass for a mark."""
    return indent(_cut(text), "  ")


def _cut(text: str) -> str:
    """Return outside text, its middle left out when it is long."""
    return middle_out(neutral(text), OBSERVATION_CHARS)
