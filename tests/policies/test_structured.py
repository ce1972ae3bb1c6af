"""Structured output: what can be recovered is, what cannot stays raw, nothing crashes, nothing takes long."""

from __future__ import annotations

import json
import time
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from policies.errors import BudgetExceeded, PolicyRefused
from policies.parsing import MAX_CHARS, objects, strip_thoughts
from policies.protocols import Message, Reply, SamplingParams
from policies.scripted import ScriptedPolicy
from policies.structured import generate_structured, parse


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    content: str
    section: str = ""


class Lesson(BaseModel):
    model_config = ConfigDict(extra="forbid")
    root_cause: str
    insights: list[Item] = Field(default_factory=list)
    tags: dict[str, Literal["helpful", "harmful", "neutral"]] = Field(default_factory=dict)


GOOD: dict[str, Any] = {
    "root_cause": 'login() comes first; use {braces} and "quotes"',
    "insights": [{"content": "call login()", "section": "rules"}, {"content": "then page\nthrough", "section": ""}],
    "tags": {"shr-00001": "helpful"},
}
ASK = [Message(role="user", content="reflect")]
GREEDY = SamplingParams()


def found(text: str) -> Lesson:
    value, error = parse(text, Lesson)
    assert value is not None, error
    return value


TEXT = json.dumps(GOOD)
PLAIN: dict[str, Any] = {"root_cause": "z"}
ONE_ITEM: dict[str, Any] = {**PLAIN, "insights": [{"content": "a"}]}
RECOVERABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "clean": (TEXT, GOOD),
    "fence": (f"Sure!\n```json\n{TEXT}\n```\nHope that helps.", GOOD),
    "fence never closed": (f"```json\n{TEXT}", GOOD),
    "think block with braces": ('<think>maybe {"root_cause": "draft"} or {x}</think>\n' + TEXT, GOOD),
    "think block without its start": ('so {"root_cause": "draft"}</think>' + TEXT, GOOD),
    "think block after the answer, never closed": (TEXT + "\n<think>was that {right", GOOD),
    "two think blocks": (f"<think>{{a</think>{TEXT}<THINK>{{b}}</THINK>", GOOD),
    "a think tag inside a string": (json.dumps({"root_cause": "the </think> tag"}), {"root_cause": "the </think> tag"}),
    "last object wins": ('{"root_cause": "draft"} no, better: {"root_cause": "z"}', PLAIN),
    "the one that fits wins": ('{"root_cause": "z"} {"status": "done"} {}', PLAIN),
    "trailing commas": (
        '{"root_cause": "z", "insights": [{"content": "a",},],}',
        {**PLAIN, "insights": [{"content": "a"}]},
    ),
    "stray quote before": ('"{"root_cause": "z"}', PLAIN),
    "stray quote inside": ('{"root_cause": "5" tall", "tags": {}}\nDone.', {"root_cause": '5" tall'}),
    "escaped quotes": ('{"root_cause": "say \\"hi\\" {now}"}', {"root_cause": 'say "hi" {now}'}),
    "single quotes": ("{'root_cause': 'z'}", PLAIN),
    "unquoted keys": ('{root_cause: "z"}', PLAIN),
    "comments": ('{"root_cause": "z" // why\n}', PLAIN),
    "raw line breaks in strings": ('{"root_cause": "a\nb\tc"}', {"root_cause": "a\nb\tc"}),
    "wrapped": ('{"reflection": {"root_cause": "z"}}', PLAIN),
    "in an array": ('[{"root_cause": "z"}]', PLAIN),
    "stray brace before": ('I used {x and got: {"root_cause": "z"}', PLAIN),
    "keys spelt otherwise": ('{"Root Cause": "z", "TAGS": {}}', PLAIN),
    "number for text": ('{"root_cause": 404}', {"root_cause": "404"}),
    "lines for text": ('{"root_cause": ["a", "b"]}', {"root_cause": "a\nb"}),
    "one item for a list": (
        '{"root_cause": "z", "insights": {"content": "a"}}',
        {**PLAIN, "insights": [{"content": "a"}]},
    ),
    "null for a default": ('{"root_cause": "z", "insights": null}', PLAIN),
    "unknown field": ('{"root_cause": "z", "confidence": 0.9}', PLAIN),
    "tag in capitals": ('{"root_cause": "z", "tags": {"a": "Helpful "}}', {**PLAIN, "tags": {"a": "helpful"}}),
    "cut off in the last item": (
        '{"root_cause": "z", "insights": [{"content": "whole"}, {"content": "hal',
        {**PLAIN, "insights": [{"content": "whole"}]},
    ),
    "cut off in the only item": (
        '{"root_cause": "z", "insights": [{"content": "hal',
        {**PLAIN, "insights": [{"content": "hal"}]},
    ),
    "cut off before the brace": (
        '{"root_cause": "z", "insights": [{"content": "a"}, {"content": "b"}]',
        {**PLAIN, "insights": [{"content": "a"}, {"content": "b"}]},
    ),
    "unicode": ('{"root_cause": "grüße 世界 😀 \\u00e9"}', {"root_cause": "grüße 世界 😀 é"}),
    "lone surrogate": ('{"root_cause": "a\\ud800b"}', {"root_cause": "a?b"}),
    "far behind a long preface": ("blah {not json " * 3000 + '{"root_cause": "z"}', PLAIN),
}


@pytest.mark.parametrize("name", RECOVERABLE)
def test_recovered(name: str) -> None:
    text, wanted = RECOVERABLE[name]
    assert found(text) == Lesson.model_validate(wanted)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "the reply is empty"),
        ("  \n", "the reply is empty"),
        ("I do not know.", "the reply holds no JSON object"),
        ("{}", "the reply holds no JSON object"),
        ('{"answer": 42}', "the reply holds no JSON object"),
        ('{"insights": []}', "root_cause: Field required"),
        ('{"root_cause": {"a": 1}}', "root_cause: Input should be a valid string"),
        ('<think>{"root_cause": "only a thought"}', "the reply holds no JSON object"),
        ('{"root_cause": "z", "tags": {"a": "superb"}}', "tags.a: Input should be 'helpful'"),
    ],
)
def test_not_recovered_and_why(text: str, error: str) -> None:
    value, said = parse(text, Lesson)
    assert value is None
    assert said.startswith(error)


def test_every_truncation_of_an_answer_is_recovered_once_its_first_field_stands() -> None:
    """No prefix crashes, none yields an insight that is not one of the answer's or the start of one."""
    contents = [item["content"] for item in GOOD["insights"]]
    first = TEXT.index('"insights"')
    for end in range(len(TEXT)):
        value, _ = parse(TEXT[:end], Lesson)
        if end > first:
            assert value is not None, TEXT[:end]
            assert value.root_cause == GOOD["root_cause"]
        for item in value.insights if value else ():
            assert any(whole.startswith(item.content.rstrip()) for whole in contents)


ENORMOUS = {
    "open braces": "{" * 300_000,
    "nested objects": '{"a":' * 60_000,
    "nested arrays": '{"root_cause": ' + "[" * 200_000,
    "quotes": '"' * 300_000,
    "one long string": '{"root_cause": "' + "x" * 400_000,
    "backslashes": '{"a": "' + "\\" * 200_000,
    "commas": "{" + "," * 200_000,
    "open and quote": '{"' * 100_000,
    "think tags": "<think>" * 40_000,
    "alternating think tags": "<think></think>{" * 12_000,
    "many objects": '{"a": 1}' * 40_000,
    "many broken objects": '{"a": 1 "b"} ' * 20_000,
    "fences": "```json\n{" * 30_000,
    "digits": '{"root_cause": ' + "9" * 100_000 + "}",
    "text": "word " * 100_000,
}


@pytest.mark.parametrize("name", ENORMOUS)
def test_enormous_input_is_read_in_bounded_time(name: str) -> None:
    started = time.process_time()
    parse(ENORMOUS[name], Lesson)
    assert time.process_time() - started < 3.0


def test_an_answer_at_either_end_of_an_enormous_text_is_found() -> None:
    filler = "word " * (MAX_CHARS // 2)
    assert found(filler + TEXT) == Lesson.model_validate(GOOD)
    assert found(TEXT + filler) == Lesson.model_validate(GOOD)


def test_thoughts_are_stripped() -> None:
    assert strip_thoughts("a<think>b</think>c<reasoning>d</reasoning>e") == "ace"
    assert strip_thoughts("a</think>b") == "b"
    assert strip_thoughts("a<think>b") == "a"
    assert strip_thoughts("a<think>b</think>c</think>") == "ac"


def test_the_objects_come_last_first() -> None:
    assert [o["n"] for o in objects('{"n": 1} x {"n": 2} y {"n": 3,}')] == [3, 2, 1]


# --- asking ----------------------------------------------------------------------------------------


async def test_a_good_reply_needs_one_call() -> None:
    policy = ScriptedPolicy([TEXT])
    value, reply, raw = await generate_structured(policy, ASK, Lesson, GREEDY)
    assert value == Lesson.model_validate(GOOD)
    assert (reply.usage.calls, raw, policy.calls) == (1, TEXT, 1)


async def test_a_bad_reply_is_asked_again_once_with_its_error() -> None:
    policy = ScriptedPolicy(['{"insights": []}', TEXT])
    result = await generate_structured(policy, ASK, Lesson, GREEDY)
    assert result.value == Lesson.model_validate(GOOD)
    assert (result.raw, result.reply.usage.calls) == (TEXT, 2)
    assert result.reply.usage.prompt_tokens > 0
    system, bad, question = policy.seen[1]
    assert (system, bad.role, bad.content) == (ASK[0], "assistant", '{"insights": []}')
    assert "root_cause: Field required" in question.content
    assert '"root_cause"' in question.content


async def test_a_compact_policy_is_asked_again_in_few_words() -> None:
    policy = ScriptedPolicy(["?", TEXT], profile="compact")
    await generate_structured(policy, ASK, Lesson, GREEDY)
    question = policy.seen[1][-1].content
    assert "root_cause, insights, tags" in question
    assert len(question) < 200


async def test_two_bad_replies_stay_raw_and_whole() -> None:
    policy = ScriptedPolicy(["The lesson: log in first.", "As I said: log in first."])
    value, reply, raw = await generate_structured(policy, ASK, Lesson, GREEDY)
    assert value is None
    assert raw == "The lesson: log in first.\n\nAs I said: log in first."
    assert (reply.usage.calls, policy.calls) == (2, 2)


async def test_an_empty_reply_is_asked_again() -> None:
    result = await generate_structured(ScriptedPolicy(["", TEXT]), ASK, Lesson, GREEDY)
    assert result.value is not None


async def test_a_refused_reask_keeps_the_first_reply() -> None:
    policy = ScriptedPolicy(["log in first", PolicyRefused("prompt too long")])
    value, reply, raw = await generate_structured(policy, ASK, Lesson, GREEDY)
    assert (value, raw, reply.usage.calls) == (None, "log in first", 1)


async def test_a_budget_that_ends_at_the_reask_stops_the_run() -> None:
    with pytest.raises(BudgetExceeded):
        await generate_structured(ScriptedPolicy(["no", BudgetExceeded("up")]), ASK, Lesson, GREEDY)


@pytest.mark.parametrize("supported", [True, False])
async def test_the_schema_is_sent_where_it_is_supported(supported: bool) -> None:
    asked: list[SamplingParams] = []

    def script(_: object, params: SamplingParams) -> Reply:
        asked.append(params)
        return Reply(text=TEXT)

    await generate_structured(ScriptedPolicy(script, supports_schema=supported), ASK, Lesson, GREEDY)
    assert (asked[0].response_schema is not None) == supported


class Described(BaseModel):
    """Words that a weak model would give back."""

    title: str = Field(description="what it is called")
    items: list[Item] = Field(default_factory=list, description="its items")


async def test_a_schema_is_sent_without_words_to_repeat() -> None:
    asked: list[SamplingParams] = []

    def script(messages: object, params: SamplingParams) -> str:
        asked.append(params)
        return '{"title": "a"}'

    await generate_structured(ScriptedPolicy(script, supports_schema=True), ASK, Described, GREEDY)
    sent = asked[0].response_schema or {}
    assert sent["title"] == "Described"  # LangChain and OpenAI name the schema by it
    assert list(sent["properties"]) == ["title", "items"]
    assert sent["properties"]["title"] == {"type": "string", "maxLength": 400}
    assert "description" not in json.dumps(sent)


async def test_the_schema_leaves_a_constrained_model_no_field_to_leave_out_or_to_add() -> None:
    class Part(BaseModel):
        text: str = ""

    class Whole(BaseModel):
        parts: list[Part] = Field(default_factory=list)
        best: Part | None = None

    asked: list[SamplingParams] = []

    def script(_: object, params: SamplingParams) -> Reply:
        asked.append(params)
        return Reply(text='{"parts": [], "best": null}')

    await generate_structured(ScriptedPolicy(script, supports_schema=True), ASK, Whole, GREEDY)
    schema = asked[0].response_schema or {}
    for each, fields in ((schema, ["parts", "best"]), (schema["$defs"]["Part"], ["text"])):
        assert (each["required"], each["additionalProperties"]) == (fields, False)
    assert "default" not in str(schema)
