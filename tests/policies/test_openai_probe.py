"""What a server can do is found out by asking: obeyed, refused, or taken and ignored."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from memory.records import Usage
from policies.errors import PolicyRefused
from policies.features import ServerFeatures, features_of
from policies.openai_server import OpenAIPolicy, ServerOptions
from policies.price import Price
from policies.protocols import SamplingParams
from policies.scripted import ScriptedPolicy
from tests.policies.model_server import MODEL, ModelServer, serving
from tests.policies.test_openai_server import HELLO, SCHEMA


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving() as running:
        yield running


async def found(policy: OpenAIPolicy, *known: ServerFeatures) -> ServerFeatures:
    """Return what was found out, without what that took."""
    return (await priced(policy, *known)).model_copy(update={"usage": Usage()})


async def priced(policy: OpenAIPolicy, *known: ServerFeatures) -> ServerFeatures:
    try:
        return await policy.server_features(known)
    finally:
        await policy.aclose()


def features(server: ModelServer, **has: Any) -> ServerFeatures:
    return ServerFeatures(base_url=server.url, model=MODEL, server="tests", **has)


async def test_a_server_that_does_everything_is_asked_once_and_uses_it_all(server: ModelServer) -> None:
    policy = OpenAIPolicy(server.url, MODEL)
    everything = features(server, json_schema=True, logprobs=True, token_ids=True, tools=True)
    assert await found(policy) == everything
    asked = len(server.requests)
    assert await found(policy) == everything
    assert len(server.requests) == asked == 3
    assert all(body["max_tokens"] <= 8 for body in server.requests)
    reply = await policy.generate(HELLO, SamplingParams(response_schema=SCHEMA))
    await policy.aclose()
    assert (reply.text, reply.token_ids is not None) == ('{"said": "hello"}', True)
    assert everything.sentence.endswith(
        "(tests): replies by JSON schema yes, tools yes, log-probabilities yes, token ids yes"
    )


async def test_what_finding_out_takes_is_counted_with_its_price(server: ModelServer) -> None:
    server.refuses = {"return_token_ids"}
    policy = OpenAIPolicy(server.url, MODEL, options=ServerOptions(price=Price(prompt=1e6)))
    usage = (await priced(policy)).usage
    assert (usage.calls, usage.prompt_tokens) == (len(server.requests), 3 * len("Say hello."))
    assert usage.cost_usd == usage.prompt_tokens
    assert usage.completion_tokens > 0
    assert (await priced(policy)).usage == Usage()


async def test_what_is_known_of_the_same_server_is_not_asked_again(server: ModelServer) -> None:
    server.answer = lambda body: "Hello!"
    before = await priced(OpenAIPolicy(server.url, MODEL))
    server.requests.clear()
    policy = OpenAIPolicy(server.url, MODEL)
    strangers = [before.model_copy(update={key: "other"}) for key in ("base_url", "model", "server")]
    known = before.model_copy(update={"since": "yesterday", "tools": False})
    assert await priced(policy, *strangers, known) == known.model_copy(update={"usage": Usage()})
    assert (server.requests, policy.supports_schema) == ([], False)
    assert before.sentence.endswith("token ids yes; asked by 3 calls, 48 tokens, which count")
    assert (await priced(policy, known)).sentence.endswith("token ids yes; as found yesterday, not asked again")
    assert (await priced(OpenAIPolicy(server.url, MODEL), *strangers)).usage.calls == 3
    options = ServerOptions(token_ids=False)
    assert (await priced(OpenAIPolicy(server.url, MODEL, options=options), known)).usage.calls == 2


async def test_what_a_server_refuses_is_no_longer_asked_for(server: ModelServer) -> None:
    server.refuses = {"response_format", "return_token_ids", "tools", "temperature"}
    policy = OpenAIPolicy(server.url, MODEL)
    assert await found(policy) == features(server)
    assert (policy.supports_schema, policy.fallbacks) == (False, ["free text"])
    attempts = server.attempts
    assert (await policy.generate(HELLO, SamplingParams(response_schema=SCHEMA))).text == "echo: hello"
    assert server.attempts == attempts + 1
    await policy.aclose()


async def test_what_is_forbidden_with_a_model_is_lacking_and_no_bad_key(server: ModelServer) -> None:
    server.forbids = {"logprobs"}
    assert await found(OpenAIPolicy(server.url, MODEL, "a good key")) == features(server, json_schema=True, tools=True)
    server.forbids = {"tools"}
    has = features(server, json_schema=True, logprobs=True, token_ids=True)
    assert await found(OpenAIPolicy(server.url, MODEL, "a good key")) == has


async def test_a_schema_that_is_taken_and_ignored_is_noticed(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = lambda body: "Hello!"
    policy = OpenAIPolicy(server.url, MODEL)
    with caplog.at_level(logging.WARNING):
        assert not (await found(policy)).json_schema
    assert not policy.supports_schema
    assert "goes on with free text" in caplog.text


async def test_a_reply_that_is_still_empty_tells_nothing_against_a_schema(server: ModelServer) -> None:
    server.answer = lambda body: None
    assert (await found(OpenAIPolicy(server.url, MODEL))).json_schema


async def test_what_the_options_rule_out_is_not_tried(server: ModelServer) -> None:
    options = ServerOptions(supports_schema=False, token_ids=False)
    assert await found(OpenAIPolicy(server.url, MODEL, options=options)) == features(server, tools=True)
    assert not any({"response_format", "logprobs"} & set(body) for body in server.requests)


async def test_a_server_that_cannot_answer_at_all_is_refused_as_by_a_request(server: ModelServer) -> None:
    with pytest.raises(PolicyRefused, match="does not serve 'ecko-1'; did you mean 'echo-1'"):
        await found(OpenAIPolicy(server.url, "ecko-1"))
    server.failures = [(200, {"hello": "world"}, {})]
    with pytest.raises(PolicyRefused, match="no chat completion"):
        await found(OpenAIPolicy(server.url, MODEL))


async def test_a_policy_without_a_server_has_no_features() -> None:
    assert await features_of(ScriptedPolicy([])) is None
