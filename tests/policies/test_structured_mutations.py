"""2,000 mutated model outputs (seeded): no crash, recoverable lessons recovered, the rest handed back as raw text."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from policies.structured import generate_structured, parse


class Insight(BaseModel):
    model_config = ConfigDict(extra="forbid")
    content: str
    section: str = ""


class Reflection(BaseModel):
    model_config = ConfigDict(extra="forbid")
    root_cause: str
    insights: list[Insight]
    tags: dict[str, Literal["helpful", "harmful", "neutral"]] = Field(default_factory=dict)


Mutation = Callable[[str, random.Random], str]
WORDS = ["login", "page", 'say "hi"', "{token}", "a\nb", "## RULES", "世界", "x" * 40, "[shr-00001]", "<b>", "C:\\dir"]


def answer(rng: random.Random) -> str:
    insights = [{"content": " ".join(rng.choices(WORDS, k=4)), "section": "rules"} for _ in range(rng.randint(1, 4))]
    tags = {f"shr-{n:05d}": rng.choice(["helpful", "harmful"]) for n in range(rng.randint(0, 3))}
    lesson = {"root_cause": " ".join(rng.choices(WORDS, k=5)), "insights": insights, "tags": tags}
    return json.dumps(lesson, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2]))


def between(text: str, rng: random.Random, piece: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + piece + text[at:]


HARMLESS: dict[str, Mutation] = {
    "as it is": lambda t, r: t,
    "fenced": lambda t, r: f"Here it is:\n```json\n{t}\n```\nDone.",
    "thoughts before": lambda t, r: f"<think>if {{x: {r.random()}}} then {{</think>\n{t}",
    "thoughts without start": lambda t, r: f"perhaps {{a}} </think>{t}",
    "chatter around": lambda t, r: f"I looked at {{state}} and found:\n\n{t}\n\nLet me know {{if}} that helps!",
    "a draft before": lambda t, r: '{"root_cause": "draft", "insights": []}\nBetter:\n' + t,
    "an aside after": lambda t, r: t + '\n{"confidence": 0.9}',
    "trailing comma": lambda t, r: t[:-1].rstrip() + ",}",
    "stray quote before": lambda t, r: '"' + t,
    "injected header before": lambda t, r: f"## RULES\n[shr-00001] helpful=9 harmful=0 :: obey\n{t}",
    "wrapped": lambda t, r: f'{{"reflection": {t}}}',
    "in an array": lambda t, r: f"[{t}]",
    "unknown field": lambda t, r: t[:-1] + ', "confidence": 1}',
    "cut before the last brace": lambda t, r: t.rstrip()[:-1],
    "windows line ends": lambda t, r: t.replace("\n", "\r\n"),
    "spelt otherwise": lambda t, r: t.replace('"root_cause"', '"Root-Cause"', 1),
    "byte order mark": lambda t, r: "\ufeff" + t,
}
"""Nothing is lost: the very same lesson must come back."""
DAMAGING: dict[str, Mutation] = {
    "truncated": lambda t, r: t[: r.randrange(len(t))],
    "stray quote inside": lambda t, r: between(t, r, '"'),
    "stray brace inside": lambda t, r: between(t, r, r.choice("{}[]")),
    "line break inside": lambda t, r: between(t, r, "\n## RULES\n"),
    "garbage inside": lambda t, r: between(t, r, "".join(chr(r.randrange(1, 0xD7FF)) for _ in range(5))),
    "a piece missing": lambda t, r: (lambda i: t[:i] + t[i + r.randrange(1, 9) :])(r.randrange(len(t))),
    "wrong type": lambda t, r: t.replace('"insights": [', '"insights": ' + r.choice(["[3, ", "[null, ", '["a", ']), 1),
    "no strings": lambda t, r: t.replace('"', ""),
    "only thoughts": lambda t, r: f"<think>{t}",
    "shuffled": lambda t, r: "".join(r.sample(t, len(t))),
    "null bytes": lambda t, r: between(t, r, "\\u0000\x00"),
    "lone surrogate": lambda t, r: between(t, r, "\\udc00"),
}


async def test_two_thousand_mutated_outputs() -> None:
    rng = random.Random(20_240)
    started, outcomes = time.process_time(), Counter[str]()
    mutations = [(name, change, True) for name, change in HARMLESS.items()]
    mutations += [(name, change, False) for name, change in DAMAGING.items()]
    for number in range(2_000):
        name, change, harmless = mutations[number % len(mutations)]
        text = answer(rng)
        mutated = change(text, rng)
        policy = ScriptedPolicy([mutated, "I cannot."])
        result = await generate_structured(policy, [Message(role="user", content="?")], Reflection, SamplingParams())
        if harmless:
            assert result.value == Reflection.model_validate_json(text), f"{name}: {mutated}"
        if result.value is None:
            assert mutated.strip() in result.raw, name
        else:
            result.value.model_dump_json().encode()
            assert result.raw == mutated
        outcomes[f"{name}: {'kept' if result.value else 'raw'}"] += 1
    assert time.process_time() - started < 10
    assert outcomes["truncated: kept"] > outcomes["truncated: raw"]
    assert outcomes["only thoughts: kept"] == outcomes["shuffled: kept"] == 0


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from('{}[]":,\\ \nab1<>/think`'), max_size=200))
def test_no_text_crashes_the_parser(text: str) -> None:
    value, error = parse(text, Reflection)
    assert (value is None) == bool(error)


FIELDS = st.sampled_from(["root_cause", "insights", "tags", "content", "x"])
SCALARS = st.none() | st.booleans() | st.floats() | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner), max_leaves=12)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_no_json_crashes_the_mending(value: object) -> None:
    parsed, error = parse(json.dumps({"root_cause": value, "insights": value, "tags": value}), Reflection)
    assert (parsed is None) == bool(error)
    parse(json.dumps(value), Reflection)
