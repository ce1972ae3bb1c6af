"""Registry of knowledge kinds: which payload class belongs to which `kind`.

A package registers its payloads when it is imported (`playbooks` bullets and notes, `skills` skills). This floor
never imports them, so a record of a kind nobody registered is refused with the names that are known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from memory.errors import BadInput
from memory.records import Payload, Record

PayloadT = TypeVar("PayloadT", bound=type[Payload])

_PAYLOADS: dict[str, type[Payload]] = {}
_RECORDS: dict[str, type[Record[Any]]] = {}


def register(payload_cls: PayloadT) -> PayloadT:
    """Register a payload class under its `kind` and return it, so that it works as a decorator.

    Raises `BadInput` when `kind` is empty or belongs to another class already.
    """
    kind = payload_cls.kind
    if not kind:
        raise BadInput(f"{payload_cls.__name__} has no kind; set the class variable `kind` before registering it")
    known = _PAYLOADS.get(kind)
    if known is not None and known.__qualname__ != payload_cls.__qualname__:
        raise BadInput(f"kind {kind!r} belongs to {known.__qualname__}; give {payload_cls.__qualname__} another kind")
    _PAYLOADS[kind] = payload_cls
    _RECORDS[kind] = Record.__class_getitem__(payload_cls)  # type: ignore
    return payload_cls


def payload_class(kind: str) -> type[Payload]:
    """Return the payload class of `kind`. Raises `BadInput` with the registered kinds when there is none."""
    if kind not in _PAYLOADS:
        known = ", ".join(sorted(_PAYLOADS)) or "none"
        raise BadInput(f"unknown kind {kind!r}; registered: {known}. Import the package that owns it first")
    return _PAYLOADS[kind]


def known_kinds() -> tuple[str, ...]:
    """Return the names of all registered kinds, sorted."""
    return tuple(sorted(_PAYLOADS))


def record_class(kind: str) -> type[Record[Any]]:
    """Return `Record[payload]` for `kind`. Raises `BadInput` as `payload_class` does."""
    payload_class(kind)
    return _RECORDS[kind]


def parse_payload(body: str) -> Payload:
    """Return the payload of a stored body, `{"kind": ..., "payload": {...}}` as JSON."""
    stored = json.loads(body)
    return payload_class(stored["kind"]).model_validate(stored["payload"])


def parse_record(data: Mapping[str, Any]) -> Record[Any]:
    """Return the record that `data` (its `model_dump`) describes.

    Raises `BadInput` for an unknown kind and pydantic's `ValidationError` for fields that do not fit.
    """
    return record_class(str(data.get("kind", ""))).model_validate(dict(data))
