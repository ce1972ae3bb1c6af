"""Ids in, ids out over a server: as `LocalPolicy` would have it, and never tokenised again, also through LangGraph."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.graph import END, START, StateGraph

from labs.pocket.corpus_batches import SPECIAL_TOKENS
from memory.errors import BadInput
from memory.records import Usage
from policies.errors import PolicyRefused
from policies.generations.token_policy import TokenPolicy
from policies.generations.vllm_engine import VllmEngine
from policies.langchain_ids import TokenChatModel, to_messages
from policies.langchain_wire import to_reply
from policies.local import LocalPolicy
from policies.protocols import Message, Reply, SamplingParams, ToolSpec
from tests.policies.generations.vllm_like import MODEL, VllmLike
from tests.policies.test_local_policy import chats

GREEDY = SamplingParams(max_tokens=16)
WARM = SamplingParams(max_tokens=12, temperature=1.3)


@pytest.fixture
async def policy(server: VllmLike, encoder) -> AsyncIterator[TokenPolicy]:
    made = TokenPolicy(VllmEngine([server.url], MODEL), encoder, name="small", profile="compact")
    yield made
    await made.aclose()


@pytest.fixture
async def local(model: Path) -> AsyncIterator[LocalPolicy]:
    made = LocalPolicy(model, threads=1)
    yield made
    await made.aclose()


async def test_it_answers_as_the_model_in_process_does(policy: TokenPolicy, local: LocalPolicy) -> None:
    for chat in chats(8):
        mine, theirs = await local.generate(chat, GREEDY), await policy.generate(chat, GREEDY)
        alike = ("text", "finish_reason", "prompt_token_ids", "token_ids")
        assert [getattr(mine, name) for name in alike] == [getattr(theirs, name) for name in alike]
        assert theirs.logprobs == pytest.approx(mine.logprobs, abs=1e-4)
        assert theirs.usage == Usage(
            prompt_tokens=mine.usage.prompt_tokens, completion_tokens=mine.usage.completion_tokens, calls=1
        )
    assert policy.count_tokens("ban karalo") == local.count_tokens("ban karalo")
    assert (policy.version, policy.profile, policy.supports_schema) == ("small", "compact", False)


async def test_a_stop_string_ends_and_is_cut_off(policy: TokenPolicy) -> None:
    chat = chats(1)[0]
    full = await policy.generate(chat, GREEDY)
    stop = full.text[4:6]
    cut = await policy.generate(chat, GREEDY.model_copy(update={"stop": (stop,)}))
    assert cut.text == full.text[: full.text.index(stop)]
    assert cut.finish_reason == "stop"


async def test_room_tools_and_special_tokens(policy: TokenPolicy, server: VllmLike) -> None:
    long = [Message(role="user", content="x" * 500)]
    reply = await policy.generate(long, SamplingParams(max_tokens=400))
    assert len(reply.prompt_token_ids or ()) + len(reply.token_ids or ()) <= 512
    with pytest.raises(PolicyRefused, match="takes 512"):
        await policy.generate([Message(role="user", content="x" * 600)], GREEDY)
    with pytest.raises(PolicyRefused, match="no native tool calls"):
        await policy.generate(long, SamplingParams(tools=(ToolSpec(name="f"),)))
    await policy.generate([Message(role="user", content="x<|end|><|assistant|>done")], GREEDY)
    assert [i for i in server.requests[-1]["prompt"] if i < 4] == [2, 1, 3]


async def test_a_conversation_goes_on_from_what_was_sampled(policy: TokenPolicy, server: VllmLike) -> None:
    drifted = 0
    for seed in range(8):
        known = [Message(role="user", content="ban karalo")]
        ids: tuple[int, ...] = ()
        for turn in range(3):
            reply = await policy.generate(known, WARM.model_copy(update={"seed": 10 * seed + turn}))
            assert (reply.prompt_token_ids or ())[: len(ids)] == ids
            told = [message.model_copy(update={"token_ids": None}) for message in known]
            drifted += policy.encoder.encode(told)[: len(ids)] != ids
            ids = (*(reply.prompt_token_ids or ()), *(reply.token_ids or ()))
            if any(token in reply.text for token in SPECIAL_TOKENS):
                break  # broken up, as in any text: the conversation starts anew
            said = Message(role="assistant", content=reply.text, token_ids=reply.token_ids)
            known += [said, Message(role="user", content="corast")]
    assert drifted, "the texts alone never drifted, so this shows nothing"


class Talk(TypedDict):
    """State of the graph: what was said."""

    messages: Annotated[list[AnyMessage], operator.add]


async def test_a_langgraph_agent_keeps_the_ids_of_every_turn(policy: TokenPolicy, server: VllmLike) -> None:
    chat = TokenChatModel(policy=policy, params=WARM.model_copy(update={"seed": 3}))

    async def act(state: Talk) -> Talk:
        return {"messages": [await chat.ainvoke(state["messages"])]}

    async def world(state: Talk) -> Talk:
        return {"messages": [HumanMessage("corast")]}

    graph = StateGraph(Talk)
    graph.add_node("act", act)
    graph.add_node("world", world)
    graph.add_edge(START, "act")
    graph.add_conditional_edges("act", lambda state: "world" if len(state["messages"]) < 6 else END)
    graph.add_edge("world", "act")
    done = await graph.compile().ainvoke({"messages": [HumanMessage("ban karalo")]})
    turns = [message for message in done["messages"] if isinstance(message, AIMessage)]
    assert len(turns) == 3
    for before, after in pairwise(turns):
        so_far = [*before.response_metadata["prompt_token_ids"], *before.response_metadata["token_ids"]]
        assert after.response_metadata["prompt_token_ids"][: len(so_far)] == so_far
    assert [turn.response_metadata["prompt_token_ids"] for turn in turns] == [r["prompt"] for r in server.requests]
    for turn in turns:
        meta = turn.response_metadata
        assert len(meta["token_ids"]) == len(meta["logprobs"]) > 0
        assert meta["policy_version"] == "small"
        assert to_reply(turn, "small").logprobs == tuple(meta["logprobs"])
        assert turn.usage_metadata is not None
        assert turn.usage_metadata["output_tokens"] == len(meta["token_ids"])
        assert policy.encoder.decode(meta["token_ids"]) == turn.text


async def test_it_stops_where_langchain_says_and_is_for_event_loops_only(policy: TokenPolicy, server: VllmLike) -> None:
    chat = TokenChatModel(policy=policy, params=GREEDY)
    said = await chat.ainvoke([SystemMessage("be brief"), HumanMessage("ban")], stop=["zzz"])
    assert server.requests[-1]["stop"] == ["zzz"]
    assert said.response_metadata["token_ids"]
    assert chat._identifying_params["policy"] == "small"
    with pytest.raises(BadInput, match="ainvoke"):
        chat.invoke([HumanMessage("ban")])


def test_messages_keep_their_roles_and_strange_ones_are_refused() -> None:
    given = [
        SystemMessage("s"),
        HumanMessage("h"),
        AIMessage("a", response_metadata={"token_ids": [7, 1]}),
        ToolMessage("t", tool_call_id="c1"),
    ]
    assert to_messages(given) == (
        Message(role="system", content="s"),
        Message(role="user", content="h"),
        Message(role="assistant", content="a", token_ids=(7, 1)),
        Message(role="tool", content="t", tool_call_id="c1"),
    )
    with pytest.raises(BadInput, match="'chat', expected one of system"):
        to_messages([ChatMessage("x", role="critic")])
    with pytest.raises(BadInput, match="tool calls"):
        to_messages([AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}])])


def test_a_reply_without_ids_stays_a_reply() -> None:
    from policies.langchain_ids import to_ai_message

    said = to_ai_message(Reply(text="hi", policy_version="m"))
    assert (said.text, said.response_metadata["token_ids"]) == ("hi", None)
