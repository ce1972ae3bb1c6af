"""The JSON schema that a reply must follow, with a bound on every text and every list.

A small model that is held to a schema may never come to an end of a text (SmolLM2 under llama.cpp: one sentence again
and again, until the last token is used up, and then nothing can be read). The bounds stand in the schema alone: what
is longer is still read, since a server without constrained decoding knows nothing of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel, Field

CHARS, ITEMS = 400, 5
"""Bounds of a text and of a list that have none of their own. llama.cpp refuses a text of more than 2,000."""


def most_chars(most: int) -> Any:
    """Annotate a text: a model that is held to the schema writes at most so many characters."""
    return Field(json_schema_extra={"maxLength": most})


def most_items(most: int) -> Any:
    """Annotate a list: a model that is held to the schema lists at most so many things."""
    return Field(json_schema_extra={"maxItems": most})


@cache
def schema_of(model_cls: type[BaseModel]) -> dict[str, Any]:
    """Return the schema without titles and descriptions: a weak model gives them back as its answer.

    Its own title stays: some backends call it by that. Every field has to be there and no other may be: what it may
    leave out, a constrained model leaves out. Every text and list is bounded.
    """
    return {"title": model_cls.__name__, **_bare(model_cls.model_json_schema())}


def unbounded(schema: Any) -> Any:
    """Return a schema without the bounds on texts and lists, for a server that refuses them."""
    if isinstance(schema, list):
        return [unbounded(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    bounds = {"string": "maxLength", "array": "maxItems"}
    return {key: unbounded(value) for key, value in schema.items() if key != bounds.get(str(schema.get("type")))}


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
    if "properties" in kept:
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    if kept.get("type") == "string" and not {"enum", "const", "pattern"} & set(kept):
        kept.setdefault("maxLength", CHARS)
    if kept.get("type") == "array":
        kept.setdefault("maxItems", ITEMS)
    return {
        key: {name: _bare(each) for name, each in value.items()} if key in ("properties", "$defs") else _bare(value)
        for key, value in kept.items()
    }
