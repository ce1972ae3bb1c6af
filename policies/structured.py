"""A pydantic object out of any policy: constrained decoding where there is some, else parse, repair, mend, one re-ask.

What could not be recovered is handed back as raw text. Nothing here drops it and nothing here stores it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from policies import prompts
from policies.errors import PolicyRefused
from policies.parsing import objects
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.schemas import schema_of
from policies.templates import render

log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)

MENDS = 3
"""Rounds of type mending; a later error may hide behind an earlier one."""
NO_OBJECT = "the reply holds no JSON object"
"""What is wrong with a reply without an object, as a re-ask says it."""
QUOTED = 4_000
"""Characters of a failed reply that the re-ask quotes back."""


class Structured(NamedTuple, Generic[M]):
    """What came of one structured request."""

    value: M | None
    reply: Reply
    """The reply the value came from (the last one without a value), with the usage of all calls made."""
    raw: str
    """The text the value came from; without a value all texts received, so that a lesson is never lost."""


async def generate_structured(
    policy: Policy, messages: Sequence[Message], model_cls: type[M], params: SamplingParams
) -> Structured[M]:
    """Return `(value | None, reply, raw)` after at most two calls.

    The schema constrains decoding where `policy.supports_schema`. A reply that cannot be recovered is answered once
    with its validation error. Raises what the policy raises; a re-ask that is refused leaves the first reply as raw.
    """
    if policy.supports_schema:
        params = params.model_copy(update={"response_schema": schema_of(model_cls)})
    first = await policy.generate(messages, params)
    value, error = parse(first.text, model_cls)
    if value is not None:
        return Structured(value, first, first.text)
    question = _reask(policy, model_cls, error)
    quoted = Message(role="assistant", content=first.text[:QUOTED])
    try:
        second = await policy.generate([*messages, quoted, Message(role="user", content=question)], params)
    except PolicyRefused as refusal:
        log.warning("%s could not be asked again for %s: %s", policy.name, model_cls.__name__, refusal)
        return Structured(None, first, first.text)
    value, error = parse(second.text, model_cls)
    reply = second.model_copy(update={"usage": first.usage + second.usage})
    if value is None:
        log.warning("%s gave no valid %s in two replies: %s", policy.name, model_cls.__name__, error)
        return Structured(None, reply, f"{first.text}\n\n{second.text}".strip())
    return Structured(value, reply, second.text)


def parse(text: str, model_cls: type[M]) -> tuple[M | None, str]:
    """Return (the last object in `text` that is a `model_cls`, "") or (None, why not). Pure; never raises."""
    error = NO_OBJECT if text.strip() else "the reply is empty"
    found = False
    for candidate in objects(text):
        for value in (candidate, *(v for v in candidate.values() if isinstance(v, dict))):
            aligned = _aligned(value, model_cls)
            if not aligned:
                continue
            result = _validated(aligned, model_cls)
            if isinstance(result, model_cls):
                return result, ""
            error, found = (error, found) if found else (str(result), True)
    return None, error


def _reask(policy: Policy, model_cls: type[BaseModel], error: str) -> str:
    if policy.profile == "compact":
        return render(prompts, "reask_compact", error=error, fields=", ".join(model_cls.model_fields))
    return render(prompts, "reask", error=error, schema=json.dumps(schema_of(model_cls), ensure_ascii=False))


def _aligned(value: dict[str, Any], model_cls: type[BaseModel]) -> dict[str, Any]:
    """Return `value` with keys spelt as the model spells them, or {} when it knows none of them."""
    names: dict[str, str] = {}
    for name, field in model_cls.model_fields.items():
        names[_plain(name)] = names[_plain(field.alias or name)] = field.alias or name
    if not any(_plain(key) in names for key in value):
        return {}
    return {names.get(_plain(key), key): item for key, item in value.items()}


def _plain(key: str) -> str:
    return "".join(c for c in key.casefold() if c.isalnum())


def _validated(value: dict[str, Any], model_cls: type[M]) -> M | str:
    """Return the object, mended where its types allow, or the errors of the unmended value."""
    first = ""
    for _ in range(MENDS + 1):
        try:
            return model_cls.model_validate(value)
        except ValidationError as invalid:
            errors = invalid.errors(include_url=False, include_context=False)
            first = first or "; ".join(f"{_where(e['loc'])}: {e['msg']}" for e in errors[:5])
            if not _mend(value, [(e["type"], e["loc"], e["input"]) for e in errors]):
                break
    return first


def _where(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "object"


def _mend(value: dict[str, Any], errors: Sequence[tuple[str, tuple[int | str, ...], Any]]) -> bool:
    """Change in place what has one reading only; return whether anything changed."""
    changed = False
    for kind, location, got in reversed(errors):  # from the back: a deletion leaves earlier indexes true
        holder = _holder(value, location)
        if holder is None or kind == "missing":
            continue
        key: Any = location[-1]
        if kind == "extra_forbidden" or got is None or got == "":
            del holder[key]
        elif kind in ("list_type", "tuple_type", "set_type"):
            holder[key] = [got]
        elif kind == "string_type" and isinstance(got, (int, float)):
            holder[key] = json.dumps(got)
        elif kind == "string_type" and isinstance(got, list) and all(isinstance(item, str) for item in got):
            holder[key] = "\n".join(got)
        elif kind in ("literal_error", "enum") and isinstance(got, str) and got != got.strip().lower():
            holder[key] = got.strip().lower()
        else:
            continue
        changed = True
    return changed


def _holder(value: Any, location: tuple[Any, ...]) -> Any:
    """Return the container that holds `location`, or None when the path names no place in `value` (union branches)."""
    for part in location[:-1]:
        known = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
        if not known:
            return None
        value = value[part]
    last = location[-1]
    if isinstance(value, dict):
        return value if last in value else None
    return value if isinstance(value, list) and isinstance(last, int) and last < len(value) else None
