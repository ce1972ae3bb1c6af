"""LangChainPolicy over LangChain's own fakes and over ChatOpenAI against a server on loopback."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

from policies.errors import PolicyRefused, PolicyUnavailable
from policies.langchain import LangChainOptions, LangChainPolicy
from policies.price import Price
from policies.protocols import Message, SamplingParams
from tests.policies.model_server import MODEL, ModelServer, serving

HELLO = [Message(role="user", content="hello")]
GREEDY = SamplingParams()
SCHEMA = {"title": "Said", "type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving() as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[Any]:
    async with openai.DefaultAsyncHttpxClient() as made:
        yield made


def chat(server: ModelServer, client: Any, model: str = MODEL) -> ChatOpenAI:
    return ChatOpenAI(model=model, base_url=server.url, api_key="none", max_retries=0, http_async_client=client)


async def test_a_fake_that_counts_its_calls_moves_on() -> None:
    fake = FakeListChatModel(responses=["a", "b", "c"])
    policy = LangChainPolicy(fake)
    assert [(await policy.generate(HELLO, GREEDY)).text for _ in range(2)] == ["a", "b"]
    assert fake.i == 2
    assert (policy.name, policy.supports_schema) == ("FakeListChatModel", False)


async def test_what_the_model_has_no_setting_for_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    policy = LangChainPolicy(FakeListChatModel(responses=["a"]))
    for _ in range(2):
        await policy.generate(HELLO, SamplingParams(temperature=0.7, seed=1))
    assert sum("temperature" in text for text in policy.fallbacks) == 1
    assert caplog.text.count("own temperature") == 1


async def test_usage_cost_and_badly_written_tool_arguments() -> None:
    message = AIMessage(
        "",
        usage_metadata={
            "input_tokens": 100,
            "output_tokens": 10,
            "total_tokens": 110,
            "input_token_details": {"cache_read": 60},
        },
        invalid_tool_calls=[{"name": "f", "args": "{'a': 1", "id": "c", "error": None, "type": "invalid_tool_call"}],
    )
    options = LangChainOptions(name="m", price=Price(prompt=1.0, completion=2.0, cached=0.5))
    policy = LangChainPolicy(GenericFakeChatModel(messages=iter([message])), options=options)
    answer = await policy.generate(HELLO, GREEDY)
    assert answer.usage.cached_tokens == 60
    assert answer.usage.cost_usd == pytest.approx((40 * 1 + 60 * 0.5 + 10 * 2) / 1e6)
    assert [(c.name, c.arguments) for c in answer.tool_calls] == [("f", {"a": 1})]
    assert policy.name == "m"


async def test_settings_reach_the_server(server: ModelServer, client: Any) -> None:
    policy = LangChainPolicy(chat(server, client))
    await policy.generate(HELLO, SamplingParams(temperature=0.7, top_p=0.9, max_tokens=33, seed=5, stop=("#",)))
    sent = server.requests[0]
    limit = sent.get("max_completion_tokens", sent.get("max_tokens"))
    assert (sent["temperature"], sent["top_p"], limit, sent["seed"], sent["stop"]) == (0.7, 0.9, 33, 5, ["#"])
    assert policy.fallbacks == []


async def test_a_seed_for_each_call_keeps_no_model_for_each(server: ModelServer, client: Any) -> None:
    def models() -> int:
        gc.collect()
        return sum(type(each) is ChatOpenAI for each in gc.get_objects())

    policy = LangChainPolicy(chat(server, client))
    before = models()
    for seed in range(3):
        await policy.generate(HELLO, SamplingParams(temperature=0.7, seed=seed))
    assert [sent["seed"] for sent in server.requests] == [0, 1, 2]
    assert models() == before


async def test_a_schema_constrains_the_reply(server: ModelServer, client: Any) -> None:
    policy = LangChainPolicy(chat(server, client), options=LangChainOptions(supports_schema=True))
    answer = await policy.generate(HELLO, SamplingParams(response_schema=SCHEMA))
    assert answer.text == '{"said": "hello"}'
    assert server.requests[0]["response_format"]["type"] == "json_schema"


async def test_a_truncated_schema_reply_is_kept(server: ModelServer, client: Any) -> None:
    server.answer, server.finish_reason = (lambda _: '{"said": "hel'), "length"
    policy = LangChainPolicy(chat(server, client), options=LangChainOptions(supports_schema=True))
    answer = await policy.generate(HELLO, SamplingParams(response_schema=SCHEMA))
    assert (answer.text, answer.finish_reason) == ('{"said": "hel', "length")


async def test_a_schema_refused_by_the_server_falls_back_and_says_so(server: ModelServer, client: Any) -> None:
    server.refuses = {"response_format"}
    policy = LangChainPolicy(chat(server, client), options=LangChainOptions(supports_schema=True))
    assert (await policy.generate(HELLO, SamplingParams(response_schema=SCHEMA))).text == "echo: hello"
    assert not policy.supports_schema
    assert "free text" in policy.fallbacks[0]


async def test_a_temperature_that_the_model_refuses_is_given_up_once_and_said(server: ModelServer, client: Any) -> None:
    server.refuses = {"temperature"}
    policy = LangChainPolicy(chat(server, client))
    both = await asyncio.gather(*(policy.generate(HELLO, SamplingParams(seed=3)) for _ in range(2)))
    assert [each.text for each in both] == ["echo: hello"] * 2, "also of calls that are refused at once"
    assert policy.fallbacks == ["the server's own temperature and top_p"]
    attempts = server.attempts
    await policy.generate(HELLO, SamplingParams(temperature=0.7, seed=3))
    assert (server.attempts - attempts, server.requests[-1]["seed"]) == (1, 3)
    assert "temperature" not in server.requests[-1]


async def test_a_refusal_that_names_no_setting_is_told(server: ModelServer, client: Any) -> None:
    server.failures = [(400, {"error": {"message": "messages must alternate"}}, {})]
    policy = LangChainPolicy(chat(server, client))
    with pytest.raises(PolicyRefused, match=r"refused the request \(HTTP 400.*must alternate"):
        await policy.generate(HELLO, GREEDY)
    assert (server.attempts, policy.fallbacks) == (1, [])


async def test_an_answer_that_is_none_is_no_bug_of_ours(server: ModelServer, client: Any) -> None:
    busy, unpaid = ({"error": {"message": "what it says", "code": code}} for code in (429, 402))
    server.failures = [(200, b'{"cho', {}), (200, busy, {}), (200, unpaid, {})]
    policy = LangChainPolicy(chat(server, client))
    with pytest.raises(PolicyUnavailable, match="JSONDecodeError"):
        await policy.generate(HELLO, GREEDY)
    with pytest.raises(PolicyUnavailable, match=r"gave no answer .*what it says"):
        await policy.generate(HELLO, GREEDY)
    with pytest.raises(PolicyRefused, match=r"HTTP 402.*what it says"):
        await policy.generate(HELLO, GREEDY)


async def test_a_fake_without_structured_output_falls_back_and_says_so() -> None:
    policy = LangChainPolicy(FakeListChatModel(responses=["a"]), options=LangChainOptions(supports_schema=True))
    assert (await policy.generate(HELLO, SamplingParams(response_schema=SCHEMA))).text == "a"
    assert not policy.supports_schema


async def test_a_dead_provider_is_unavailable_and_a_wrong_model_refused(server: ModelServer, client: Any) -> None:
    with pytest.raises(PolicyRefused, match="does not know this model"):
        await LangChainPolicy(chat(server, client, "nope")).generate(HELLO, GREEDY)
    server.key = "k"
    with pytest.raises(PolicyRefused, match="refused the key"):
        await LangChainPolicy(chat(server, client)).generate(HELLO, GREEDY)
    server.url = "http://127.0.0.1:9/v1"
    with pytest.raises(PolicyUnavailable, match="gave no answer"):
        await LangChainPolicy(chat(server, client)).generate(HELLO, GREEDY)


async def test_a_call_that_hangs_is_unavailable(server: ModelServer, client: Any) -> None:
    server.delay_s = 1
    policy = LangChainPolicy(chat(server, client), options=LangChainOptions(timeout_s=0.2))
    with pytest.raises(PolicyUnavailable, match="TimeoutError"):
        await policy.generate(HELLO, GREEDY)


@pytest.mark.parametrize("name", ["nosuchprovider:model", "no-provider-at-all", "cohere:command"])
def test_a_string_that_makes_no_model_is_refused_with_the_fix(name: str) -> None:
    with pytest.raises(PolicyRefused, match=r"provider:model"):
        LangChainPolicy(name)


def test_a_missing_key_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(PolicyRefused, match="environment variable"):
        LangChainPolicy("openai:gpt-4o-mini")


def test_a_string_makes_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-test-4f9a8b7c6d5e4f3a2b1c0d9e"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    policy = LangChainPolicy("openai:gpt-4o-mini")
    assert policy.name == "openai:gpt-4o-mini"
    assert secret not in repr(policy) + repr(vars(policy))
