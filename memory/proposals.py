"""Prepares proposed ops for a transaction: payloads parsed, redacted, hashed and embedded before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from memory.content import canonical, clean, digest
from memory.errors import BadInput
from memory.kinds import payload_class
from memory.protocols import Embedder
from memory.records import DeltaOp, Payload
from memory.vectors import to_blob


@dataclass(frozen=True)
class Prepared:
    """An op with all that can be computed without the database. `refusal` is set when it can never be applied.

    `op` is clean: its payload, its reason and the ids that it names.
    """

    op: DeltaOp
    payload: Payload | None = None
    slug: str = ""
    text: str = ""
    body: str = ""
    content_hash: str = ""
    vector: bytes = b""
    key_hash: str = ""
    refusal: str = ""


def prepare(ops: Sequence[DeltaOp], embedder: Embedder) -> list[Prepared]:
    """Return one `Prepared` per op, in order. An op with a bad payload is refused on its own; the others go on."""
    prepared = [_parse(_clean(op)) for op in ops]
    waiting = [i for i, item in enumerate(prepared) if item.payload is not None]
    keys = [_key(prepared[i]) for i in waiting]
    for i, key, vector in zip(waiting, keys, _embed(keys, embedder), strict=True):
        if isinstance(vector, str):
            prepared[i] = replace(prepared[i], refusal=vector)
        else:
            prepared[i] = replace(prepared[i], vector=vector, key_hash=digest(key))
    return prepared


def _key(item: Prepared) -> str:
    return item.payload.key() if item.payload is not None else ""


def _clean(op: DeltaOp) -> DeltaOp:
    said = {"payload": op.payload, "reason": op.reason, "target_id": op.target_id, "parent_ids": op.parent_ids}
    cleaned = clean(said)
    if cleaned is said:
        return op
    return op.model_copy(update={**cleaned, "parent_ids": tuple(cleaned["parent_ids"])})


def _parse(op: DeltaOp) -> Prepared:
    if op.payload is None:
        return Prepared(op)
    try:
        payload = payload_class(op.kind).model_validate(op.payload)
    except BadInput as error:
        return Prepared(op, refusal=clean(str(error)))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'payload'}: {e['msg']}" for e in error.errors()[:3])
        return Prepared(op, refusal=f"payload is not a {op.kind}: {problems}")
    if not payload.text().strip():
        return Prepared(op, refusal=f"got a {op.kind} without a text; expected at least one visible character")
    body = canonical({"kind": op.kind, "payload": payload.model_dump(mode="json")})
    return Prepared(op, payload, slug=payload.slug(), text=payload.text(), body=body, content_hash=digest(body))


def _embed(keys: Sequence[str], embedder: Embedder) -> list[bytes | str]:
    """Return vectors as float32 bytes; the reason, as text, for a key that cannot be embedded."""
    if not keys:
        return []
    try:
        return [to_blob(row) for row in embedder.embed(keys)]
    except BadInput as error:
        if len(keys) == 1:
            return [str(error)]
    return [_embed([key], embedder)[0] for key in keys]
