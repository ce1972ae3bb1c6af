"""A model's answer when it writes or merges notes, and the note that becomes of it: too long parts are shortened.

A part that is missing cannot be mended, anti-patterns least of all: the model is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from playbooks.compact import listed
from playbooks.kinds.bullet import one_line
from playbooks.kinds.note import LIMITS, MAX_EXAMPLES, TOTAL_WORDS, Note, said, words
from playbooks.notebook.failure_clusters import cluster_id
from playbooks.render import neutral
from policies.schemas import most_chars, most_items

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_LEAST = 10
"""Words that every part keeps when the whole is shortened."""


class NoteDraft(BaseModel):
    """A note as a model wrote it. Fields it invented are ignored, lists and texts are taken for each other."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    subject: Annotated[str, most_chars(100)]
    corrected_examples: Annotated[tuple[Annotated[str, most_chars(300)], ...], most_items(MAX_EXAMPLES)] = Field(
        validation_alias=AliasChoices("corrected_examples", "corrected_example", "examples")
    )
    correct_approach: str
    mistake_summary: str
    strategy: Annotated[str, most_chars(500)] = Field(
        validation_alias=AliasChoices("strategy", "generalizable_strategy")
    )
    anti_patterns: Annotated[tuple[Annotated[str, most_chars(120)], ...], most_items(3)] = Field(
        validation_alias=AliasChoices("anti_patterns", "anti_pattern", "antipatterns", "when_not_to_apply"),
        description="when NOT to apply the note; required",
    )

    @field_validator("subject", "correct_approach", "mistake_summary", "strategy", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return " ".join(str(item) for item in listed(value)) if isinstance(value, list) else value

    @field_validator("corrected_examples", "anti_patterns", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        return [_flat(item) for item in listed(value)]

    @field_validator(
        "subject", "corrected_examples", "correct_approach", "mistake_summary", "strategy", "anti_patterns"
    )
    @classmethod
    def _given(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(value, str):
            if not said(value):
                raise ValueError("must not be empty")
            return value
        kept = tuple(item for item in value if said(item))
        if not kept:
            raise ValueError("needs at least one")
        return kept


def note_of(draft: NoteDraft, failure_ids: Sequence[str]) -> Note:
    """Return the note of a draft about these failures, within all limits; its cluster is named by them."""
    plain = {name: one_line(neutral(getattr(draft, name))) for name in LIMITS if isinstance(getattr(draft, name), str)}
    fields: dict[str, Any] = {name: shortened(text, LIMITS[name]) for name, text in plain.items()}
    fields["anti_patterns"] = _fitting(draft.anti_patterns, LIMITS["anti_patterns"])
    examples = tuple(
        shortened(one_line(neutral(text)), LIMITS["corrected_examples"]) for text in draft.corrected_examples
    )
    fields["corrected_examples"] = examples[:MAX_EXAMPLES]
    ids = tuple(dict.fromkeys(failure_ids))
    return Note(**_within_total(fields), failure_ids=ids, cluster_id=cluster_id(ids))


def shortened(text: str, limit: int) -> str:
    """Return as many whole sentences of `text` as `limit` words hold; the first words where these say nothing."""
    if words(text) <= limit:
        return text
    kept = ""
    for sentence in _SENTENCE.split(text):
        longer = f"{kept} {sentence}".strip()
        if words(longer) > limit:
            break
        kept = longer
    return kept if said(kept) else " ".join(text.split()[:limit])


def _fitting(texts: Sequence[str], limit: int) -> tuple[str, ...]:
    """Return the texts that together hold at most `limit` words; at least the first, shortened."""
    kept: list[str] = []
    for text in dict.fromkeys(one_line(neutral(text)) for text in texts):
        left = limit - sum(map(words, kept))
        if not kept:
            kept.append(shortened(text, left))
        elif words(text) <= left:
            kept.append(text)
    return tuple(kept)


def _within_total(fields: dict[str, Any]) -> dict[str, Any]:
    """Drop examples but the first, then shorten the summary and the strategy, until the whole fits."""

    def over() -> int:
        texts = [fields[name] for name in ("correct_approach", "mistake_summary", "strategy")]
        return sum(map(words, (*texts, *fields["corrected_examples"], *fields["anti_patterns"]))) - TOTAL_WORDS

    while over() > 0 and len(fields["corrected_examples"]) > 1:
        fields["corrected_examples"] = fields["corrected_examples"][:-1]
    for name in ("mistake_summary", "strategy"):
        if over() > 0:
            fields[name] = shortened(fields[name], max(words(fields[name]) - over(), _LEAST))
    return fields


def _flat(item: Any) -> Any:
    """Return one item of a list as a text: an object's values in order, e.g. of {"wrong": ..., "right": ...}."""
    if isinstance(item, dict):
        return "; ".join(f"{key}: {value}" for key, value in item.items() if isinstance(value, str | int | float))
    return str(item) if isinstance(item, int | float) else item
