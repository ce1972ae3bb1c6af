"""The parts of what a payload says, and the payload without some of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from pydantic import ValidationError

from memory.errors import BadInput
from memory.kinds import payload_class
from memory.records import Payload
from playbooks.clauses import clauses, sentences, without
from playbooks.kinds.bullet import Bullet
from playbooks.kinds.note import LIMITS, Note

UNMEASURED = "not measured"
"""Stands in a note for a field of which nothing was left."""


class Part(NamedTuple):
    """A stretch of one of a payload's texts. It holds places and no words, so that it says nothing once the payload is
    erased."""

    field: str
    """Name of the field, with `.1` behind it for the second text of a field that has several."""
    start: int
    end: int


def parts(kind: str, payload: Mapping[str, Any] | None) -> tuple[tuple[Part, ...], ...]:
    """Return the sentences of what a payload shows, each as its clauses; none for a kind that cannot be divided."""
    found: list[tuple[Part, ...]] = []
    for name, text in _texts(_payload(kind, payload)):
        for sentence in sentences(text):
            found.append(tuple(Part(name, start, end) for start, end in clauses(text, sentence)))
    return tuple(found)


def said(kind: str, payload: Mapping[str, Any] | None, part: Part) -> str:
    """Return the words of a part."""
    return dict(_texts(_payload(kind, payload)))[part.field][part.start : part.end].strip()


def shortened(kind: str, payload: Mapping[str, Any], cut: Collection[Part]) -> dict[str, Any]:
    """Return the payload without some parts, as it is stored; `{}` when nothing would be left to say."""
    made = _payload(kind, payload)
    texts = dict(_texts(made))
    for name, some in groupby(sorted(cut), key=lambda part: part.field):
        texts[name] = without(texts[name], [(part.start, part.end) for part in some])
    if made is None or not any(texts.values()):
        return {}
    fields = texts if isinstance(made, Bullet) else _note(texts)
    return type(made).model_validate({**made.model_dump(mode="json"), **fields}).model_dump(mode="json")


def _payload(kind: str, payload: Mapping[str, Any] | None) -> Payload | None:
    try:
        return payload_class(kind).model_validate(payload or {})
    except (BadInput, ValidationError):
        return None


def _texts(payload: Payload | None) -> Iterator[tuple[str, str]]:
    if isinstance(payload, Bullet):
        yield "content", payload.content
    elif isinstance(payload, Note):
        for name in LIMITS:
            for at, text in enumerate(payload.parts(name)):
                yield (f"{name}.{at}" if at else name), text


def _note(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a note: what lost all its words says so, its subject is then what the note says first."""
    first = next(text for text in texts.values() if text)
    fields: dict[str, Any] = {}
    for name in LIMITS:
        left = [text for key, text in texts.items() if key.partition(".")[0] == name and text]
        empty = " ".join(first.split()[: LIMITS["subject"]]) if name == "subject" else UNMEASURED
        left = left or [empty]
        fields[name] = left if name in ("corrected_examples", "anti_patterns") else left[0]
    return fields
