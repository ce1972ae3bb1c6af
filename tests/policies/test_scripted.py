"""The shipped fake, and how light importing it is."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from memory.errors import BadInput
from memory.records import ToolCall, Usage
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.protocols import Message, Reply, SamplingParams
from policies.scripted import ScriptedPolicy

HELLO = [Message(role="user", content="hello")]
GREEDY = SamplingParams()


async def test_a_sequence_is_answered_in_order_and_ends_clearly() -> None:
    policy = ScriptedPolicy(["a", "b"])
    assert [(await policy.generate(HELLO, GREEDY)).text for _ in range(2)] == ["a", "b"]
    with pytest.raises(PolicyRefused, match="has 2 replies, call 3 was made"):
        await policy.generate(HELLO, GREEDY)
    assert policy.calls == 3
    assert policy.seen[0] == tuple(HELLO)


async def test_an_answer_that_is_no_reply_is_named() -> None:
    policy = ScriptedPolicy(lambda messages, params: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(BadInput, match=r"script-.* gave None for call 1; expected a text or a Reply"):
        await policy.generate(HELLO, GREEDY)


async def test_a_function_sees_messages_and_params() -> None:
    policy = ScriptedPolicy(lambda messages, params: f"{messages[-1].content} {params.seed}")
    assert (await policy.generate(HELLO, SamplingParams(seed=4))).text == "hello 4"


async def test_whole_replies_keep_what_they_bring() -> None:
    call = ToolCall(id="1", name="f", arguments={"a": 1})
    told = Reply(text="", tool_calls=(call,), usage=Usage(prompt_tokens=9, calls=1), policy_version="v7")
    policy = ScriptedPolicy([told, Reply(text="x", token_ids=(1, 2, 3), logprobs=(-0.1, -0.2, -0.3))])
    assert await policy.generate(HELLO, GREEDY) == told
    assert (await policy.generate(HELLO, GREEDY)).usage.completion_tokens == 3


async def test_scripted_errors_are_raised() -> None:
    with pytest.raises(PolicyUnavailable, match="down"):
        await ScriptedPolicy([PolicyUnavailable("down")]).generate(HELLO, GREEDY)


async def test_latency_is_simulated_and_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    all_wait = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 8:
            all_wait.set()
        await all_wait.wait()  # ends only if all eight wait at the same time

    monkeypatch.setattr(asyncio, "sleep", sleep)
    policy = ScriptedPolicy(lambda *_: "x", latency_s=0.2)
    async with asyncio.timeout(600):
        await asyncio.gather(*(policy.generate(HELLO, GREEDY) for _ in range(8)))
    assert waits == [0.2] * 8


def test_the_version_follows_the_script() -> None:
    assert ScriptedPolicy(["a"]).version == ScriptedPolicy(["a"]).version != ScriptedPolicy(["b"]).version
    assert ScriptedPolicy(["a"], version="v1").version == "v1"


HEAVY = ("openai", "langchain_core", "langchain", "jinja2", "json_repair", "tenacity", "torch", "httpx")


@pytest.mark.parametrize("module", ["protocols", "scripted", "structured", "prompts", "budget", "cache", "parsing"])
def test_importing_a_module_that_is_no_backend_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, policies.{module}; print(*[m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
