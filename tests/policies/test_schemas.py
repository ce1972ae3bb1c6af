"""A model that is held to a schema comes to an end: every text and list of what we ask for is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, create_model

from evolve.episode.teacher import Advice
from evolve.loop.nodes.judge import SelfJudgement
from evolve.training.pivots.policy import Reflected
from playbooks.compact import CompactDecision, CompactReflection
from playbooks.full import FullCuration, FullReflection
from playbooks.methods.agentdevel import Release, Symptom
from playbooks.methods.atlas import Guidance
from playbooks.methods.cheatsheet import Sheet
from playbooks.methods.evolver import Principle, Same
from playbooks.methods.reasoningbank import Items
from playbooks.notebook.failure_judge import Judgement
from playbooks.notebook.note_drafts import NoteDraft
from playbooks.notebook.write import params_of
from policies.schemas import schema_of, unbounded
from skills.drafts import Drafts

ASKED: dict[type[BaseModel], int] = {
    CompactReflection: 256,
    CompactDecision: 64,
    FullReflection: 2048,
    FullCuration: 2048,
    NoteDraft: params_of("compact").max_tokens,
    Judgement: 64,
    SelfJudgement: 256,
    Advice: 512,
    Reflected: 1024,
    Principle: 512,
    Same: 128,
    Guidance: 512,
    Items: 1024,
    Sheet: 8192,
    Symptom: 64,
    Release: 2048,
    Drafts: 4096,
}
"""Everything that a policy is asked to answer by, with the `max_tokens` that its role asks for."""
CHARS_A_TOKEN = 4
"""Of English prose, in the tokenizers of today's models; code takes more tokens."""
MOST_REPEATED = 2000
"""llama.cpp refuses a grammar that repeats something more often."""


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list):
        for each in schema:
            yield from nodes(each)
    elif isinstance(schema, dict):
        yield schema
        for each in schema.values():
            yield from nodes(each)


def longest(schema: Any, defs: Any) -> int:
    """Return the characters of the longest reply that a schema allows, written without spaces between its parts."""
    if "$ref" in schema:
        return longest(defs[schema["$ref"].rsplit("/", 1)[1]], defs)
    if "anyOf" in schema:
        return max(longest(each, defs) for each in schema["anyOf"])
    if "enum" in schema:
        return max(len(repr(each)) for each in schema["enum"])
    match schema["type"]:
        case "string":
            return schema["maxLength"] + 2
        case "array":
            return schema["maxItems"] * (longest(schema["items"], defs) + 1) + 2
        case "object":
            return sum(len(name) + 4 + longest(each, defs) for name, each in schema["properties"].items()) + 2
        case _:
            return 5


@pytest.mark.parametrize("model_cls", ASKED, ids=lambda cls: cls.__name__)
def test_the_longest_reply_that_a_schema_allows_fits_into_what_its_role_may_write(model_cls: type[BaseModel]) -> None:
    schema = schema_of(model_cls)
    assert longest(schema, schema.get("$defs")) / CHARS_A_TOKEN <= ASKED[model_cls]
    bounds = [node.get(key, 1) for node in nodes(schema) for key in ("maxLength", "maxItems")]
    assert all(0 < bound <= MOST_REPEATED for bound in bounds)


def test_a_longer_reply_is_read_all_the_same() -> None:
    content = "Call `lock` before `lift`. " * 100
    answer = FullReflection.model_validate({"insights": [{"content": content}] * 20})
    assert [lesson.content for lesson in answer.insights] == [content] * 20


def test_what_says_its_own_bound_keeps_it_and_what_is_one_of_few_values_needs_none() -> None:
    schema = schema_of(FullReflection)
    assert schema["properties"]["reasoning"]["maxLength"] == 400
    assert schema["properties"]["root_cause"]["maxLength"] == 200
    assert "maxLength" not in schema_of(Judgement)["properties"]["verdict"]


def test_without_bounds_nothing_else_is_missing() -> None:
    odd = create_model("Odd", maxLength=(str, ...), lines=(list[str], ...))
    bare = {
        "title": "Odd",
        "type": "object",
        "properties": {"maxLength": {"type": "string"}, "lines": {"type": "array", "items": {"type": "string"}}},
        "required": ["maxLength", "lines"],
        "additionalProperties": False,
    }
    assert unbounded(schema_of(odd)) == bare
