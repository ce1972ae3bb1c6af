"""What every `Policy` promises, over every implementation that needs no weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_core.language_models import SimpleChatModel
from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI

from memory.records import ToolCall
from policies.budget import Budget, BudgetedPolicy
from policies.cache import CachedPolicy
from policies.errors import PolicyError
from policies.langchain import LangChainPolicy
from policies.openai_server import OpenAIPolicy
from policies.protocols import Message, Policy, Reply, SamplingParams, ToolSpec
from policies.recordings import Recordings
from policies.scripted import ScriptedPolicy
from tests.policies.model_server import MODEL, ModelServer, serving

HELLO = [Message(role="system", content="Echo."), Message(role="user", content="grüße 世界")]


class EchoChat(SimpleChatModel):
    """A LangChain fake that echoes."""

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _call(self, messages: list[BaseMessage], stop: list[str] | None = None, *_: Any, **__: Any) -> str:
        return f"echo: {messages[-1].content}"


def scripted_echo(messages: Sequence[Message], params: SamplingParams) -> str | Reply:
    if params.tools:
        return Reply(text="", tool_calls=(ToolCall(id="1", name=params.tools[0].name, arguments={"city": "Oslo"}),))
    return f"echo: {messages[-1].content}"


def chat_openai(server: ModelServer) -> ChatOpenAI:
    """Without a client of its own it would share connections with models of other event loops."""
    client = openai.DefaultAsyncHttpxClient()
    return ChatOpenAI(model=MODEL, base_url=server.url, api_key="none", max_retries=0, http_async_client=client)


Factory = Callable[[ModelServer, Path], Policy]
POLICIES: dict[str, Factory] = {
    "scripted": lambda server, path: ScriptedPolicy(scripted_echo),
    "langchain-fake": lambda server, path: LangChainPolicy(EchoChat()),
    "langchain-openai": lambda server, path: LangChainPolicy(chat_openai(server)),
    "openai": lambda server, path: OpenAIPolicy(server.url, MODEL),
    "budgeted": lambda server, path: BudgetedPolicy(ScriptedPolicy(scripted_echo), Budget(calls=100)),
    "cached": lambda server, path: CachedPolicy(ScriptedPolicy(scripted_echo), Recordings(path / "replies.jsonl")),
    "cached-server": lambda server, path: CachedPolicy(OpenAIPolicy(server.url, MODEL), Recordings(path / "r.jsonl")),
}
CALLS_TOOLS = sorted(set(POLICIES) - {"langchain-fake"})


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with serving(ModelServer(vllm=True, tool_arguments='{"city": "Oslo"}')) as running:
        yield running


@pytest.fixture(params=sorted(POLICIES))
async def policy(request: pytest.FixtureRequest, server: ModelServer, tmp_path: Path) -> AsyncIterator[Policy]:
    made = POLICIES[request.param](server, tmp_path)
    yield made
    await made.aclose()
    if isinstance(made, LangChainPolicy) and isinstance(made.model, ChatOpenAI):
        await made.model.root_async_client.close()


async def test_says_who_it_is(policy: Policy) -> None:
    assert policy.name
    assert policy.version
    assert policy.profile in ("full", "compact")
    assert isinstance(policy.supports_schema, bool)
    assert policy.name in repr(policy)


async def test_answers_with_text_usage_and_version(policy: Policy) -> None:
    reply = await policy.generate(HELLO, SamplingParams())
    assert reply.text == "echo: grüße 世界"
    assert reply.usage.calls == 1
    assert reply.usage.prompt_tokens > 0
    assert reply.usage.completion_tokens > 0
    assert reply.policy_version
    assert reply.finish_reason == "stop"


async def test_the_greedy_answer_is_the_same_twice_and_the_input_unchanged(policy: Policy) -> None:
    before = [m.model_copy() for m in HELLO]
    first = await policy.generate(HELLO, SamplingParams())
    assert (await policy.generate(HELLO, SamplingParams())).text == first.text
    assert before == HELLO


async def test_token_level_fields_agree(policy: Policy) -> None:
    reply = await policy.generate(HELLO, SamplingParams())
    if reply.token_ids is not None and reply.logprobs is not None:
        assert len(reply.token_ids) == len(reply.logprobs)
        assert all(p <= 0 for p in reply.logprobs)


async def test_a_reply_survives_json(policy: Policy) -> None:
    reply = await policy.generate(HELLO, SamplingParams())
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


async def test_parallel_calls_get_their_own_answers(policy: Policy) -> None:
    prompts = [[Message(role="user", content=f"number {n}")] for n in range(8)]
    replies = await asyncio.gather(*(policy.generate(p, SamplingParams()) for p in prompts))
    assert [r.text for r in replies] == [f"echo: number {n}" for n in range(8)]


async def test_a_tool_conversation_is_accepted(policy: Policy) -> None:
    call = ToolCall(id="c1", name="weather", arguments={"city": "Oslo"})
    messages = [
        *HELLO,
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="rain", tool_call_id="c1"),
    ]
    assert (await policy.generate(messages, SamplingParams())).text == "echo: rain"


async def test_sampling_parameters_are_accepted(policy: Policy) -> None:
    params = SamplingParams(temperature=0.7, top_p=0.9, max_tokens=64, stop=("###",), seed=7)
    assert (await policy.generate(HELLO, params)).text


async def test_counts_tokens(policy: Policy) -> None:
    assert policy.count_tokens("") == 0
    assert policy.count_tokens("one two three") >= 3
    assert policy.count_tokens("word " * 100) > policy.count_tokens("word " * 10)


async def test_can_be_closed_twice(policy: Policy) -> None:
    await policy.generate(HELLO, SamplingParams())
    await policy.aclose()
    await policy.aclose()


@pytest.mark.parametrize("policy", CALLS_TOOLS, indirect=True)
async def test_calls_a_tool(policy: Policy) -> None:
    weather = ToolSpec(name="weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
    reply = await policy.generate(HELLO, SamplingParams(tools=(weather,)))
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("weather", {"city": "Oslo"})]
    assert reply.tool_calls[0].id


def test_works_in_one_event_loop_after_another(server: ModelServer, tmp_path: Path) -> None:
    async def use(policy: Policy) -> str:
        try:
            return (await policy.generate(HELLO, SamplingParams())).text
        finally:
            await policy.aclose()

    for name, factory in POLICIES.items():
        if name == "langchain-openai":
            continue  # LangChain's models own their connections; they live in one loop
        folder = tmp_path / name
        folder.mkdir()
        policy = factory(server, folder)
        assert [asyncio.run(use(policy)) for _ in range(2)] == ["echo: grüße 世界"] * 2, name


async def test_a_tool_is_refused_by_a_model_without_tool_calls() -> None:
    with pytest.raises(PolicyError, match="no native tool calls"):
        await LangChainPolicy(EchoChat()).generate(HELLO, SamplingParams(tools=(ToolSpec(name="weather"),)))
