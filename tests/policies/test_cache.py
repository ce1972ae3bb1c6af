"""Stored replies: paid once, replayed exactly, never confused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from evolve.episode.journalled_replies import RunReplies
from memory.embedders.hashing import HashingEmbedder
from memory.errors import BadInput
from memory.records import ToolCall
from memory.store import Store
from policies.cache import CachedPolicy
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.protocols import Message, Reply, ReplyStore, SamplingParams
from policies.recordings import Recordings
from policies.scripted import ScriptedPolicy
from tests.policies.full_disk import largest_file

GREEDY = SamplingParams()


def says(text: str) -> list[Message]:
    return [Message(role="user", content=text)]


def numbered() -> ScriptedPolicy:
    """A policy that never says the same twice."""
    numbers = count()
    return ScriptedPolicy(lambda messages, _: f"{messages[-1].content} {next(numbers)}", version="v1")


@pytest.fixture(params=["recordings", "store"])
def replies(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReplyStore]:
    if request.param == "recordings":
        yield Recordings(tmp_path / "replies.jsonl")
    else:
        with Store.open(tmp_path / "ws", embedder=HashingEmbedder(), index="exact") as store:
            yield RunReplies(store, "run")


async def test_a_reply_is_paid_once_and_replayed_whole(replies: ReplyStore) -> None:
    call = ToolCall(id="1", name="f", arguments={"a": [1, {"b": "ü"}]})
    whole = Reply(
        text="line\nbreak \u2028 {x}",
        tool_calls=(call,),
        token_ids=(1, 2),
        logprobs=(-0.25, -1e-9),
        finish_reason="stop",
    )
    inner = ScriptedPolicy([whole])
    policy = CachedPolicy(inner, replies)
    first = await policy.generate(says("a"), GREEDY)
    again = await policy.generate(says("a"), GREEDY)
    assert inner.calls == 1
    assert first.usage.calls == 1
    assert again == first, "an interrupted episode would count fewer calls than one that was not"
    assert (policy.hits, policy.misses) == (1, 1)


async def test_another_process_replays_it(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    first = await CachedPolicy(numbered(), Recordings(path)).generate(says("a"), GREEDY)
    replayed = CachedPolicy(ScriptedPolicy([], version="v1"), Recordings(path), replay_only=True)
    assert (await replayed.generate(says("a"), GREEDY)).text == first.text
    with pytest.raises(PolicyRefused, match=r"no recorded reply of 'scripted'.*record again"):
        await replayed.generate(says("b"), GREEDY)


def test_a_file_that_a_killed_process_only_opened_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "replies.jsonl").touch()
    assert Recordings(tmp_path / "replies.jsonl").get_reply("a") is None


async def test_a_full_disk_leaves_no_half_of_a_reply(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    replies = Recordings(path)
    await replies.put_reply("a", {"reply": 1})
    whole = path.read_bytes()
    with largest_file(len(whole) + 5), pytest.raises(OSError, match="No space left"):
        await replies.put_reply("b", {"reply": 2})
    assert path.read_bytes() == whole
    assert replies.get_reply("b") is None
    await replies.put_reply("c", {"reply": 3})
    assert Recordings(path).get_reply("c") == {"reply": 3}


async def test_a_reply_is_stored_before_it_is_used(replies: ReplyStore) -> None:
    order: list[str] = []

    class Watched:
        async def put_reply(self, key: str, reply: dict[str, Any]) -> None:
            await replies.put_reply(key, reply)
            order.append("stored")

        def get_reply(self, key: str) -> dict[str, Any] | None:
            return replies.get_reply(key)

    await CachedPolicy(numbered(), Watched()).generate(says("a"), GREEDY)
    order.append("used")
    assert order == ["stored", "used"]


@pytest.mark.parametrize(
    "change",
    [
        {"messages": says("b")},
        {"messages": [Message(role="system", content="a")]},
        {"params": SamplingParams(max_tokens=3)},
        {"params": SamplingParams(temperature=0.7, seed=1)},
        {"version": "v2"},
        {"name": "other"},
        {"scope": "run-2"},
    ],
    ids=str,
)
async def test_whatever_differs_is_asked_anew(change: dict[str, Any], tmp_path: Path) -> None:
    store = Recordings(tmp_path / "r.jsonl")
    await CachedPolicy(numbered(), store).generate(says("a"), GREEDY)
    inner = ScriptedPolicy(["new"], name=change.get("name", "scripted"), version=change.get("version", "v1"))
    policy = CachedPolicy(inner, store, scope=change.get("scope", ""))
    assert (await policy.generate(change.get("messages", says("a")), change.get("params", GREEDY))).text == "new"


async def test_an_episode_of_other_weights_goes_on_where_its_scope_says_so(tmp_path: Path) -> None:
    store = Recordings(tmp_path / "r.jsonl")
    before = ScriptedPolicy(["a"], version="v1")
    first = await CachedPolicy(before, store, scope="7/0", any_version=True).generate(says("a"), GREEDY)
    after = CachedPolicy(ScriptedPolicy(["b"], version="v2"), store, scope="7/0", any_version=True)
    assert await after.generate(says("a"), GREEDY) == first
    assert first.policy_version == "v1"
    assert (await after.generate(says("b"), GREEDY)).policy_version == "v2"
    elsewhere = CachedPolicy(ScriptedPolicy(["c"], version="v2"), store, scope="7/1", any_version=True)
    assert (await elsewhere.generate(says("a"), GREEDY)).text == "c"


async def test_unseeded_samples_stay_different_and_replay_in_order(replies: ReplyStore) -> None:
    hot = SamplingParams(temperature=1.0)
    first = CachedPolicy(numbered(), replies)
    texts = [(await first.generate(says("a"), hot)).text for _ in range(3)]
    assert len(set(texts)) == 3
    resumed = CachedPolicy(ScriptedPolicy([], version="v1"), replies)
    assert [(await resumed.generate(says("a"), hot)).text for _ in range(3)] == texts


async def test_equal_requests_in_flight_make_one_call(replies: ReplyStore) -> None:
    inner = ScriptedPolicy(lambda *_: "x", latency_s=0.02)
    policy = CachedPolicy(inner, replies)
    got = await asyncio.gather(*(policy.generate(says("a"), GREEDY) for _ in range(8)))
    assert inner.calls == 1
    assert (policy.misses, policy.hits) == (1, 7)
    assert {reply.usage.calls for reply in got} == {1}, "which of them was first would decide what it counts"


async def test_a_failure_is_not_stored(replies: ReplyStore) -> None:
    policy = CachedPolicy(ScriptedPolicy([PolicyUnavailable("down"), "up"]), replies)
    with pytest.raises(PolicyUnavailable):
        await policy.generate(says("a"), GREEDY)
    assert (await policy.generate(says("a"), GREEDY)).text == "up"


async def test_a_reply_whose_secret_was_redacted_is_asked_again(
    replies: ReplyStore, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "sk-proj-" + "a1B2c3D4" * 4
    inner = ScriptedPolicy([f"use {secret}", "second"])
    policy = CachedPolicy(inner, replies)
    assert secret in (await policy.generate(says("a"), GREEDY)).text
    again = (await policy.generate(says("a"), GREEDY)).text
    if isinstance(replies, RunReplies):
        assert again == "second"
        assert "cannot be replayed" in caplog.text
        assert secret not in caplog.text
    else:
        assert secret in again


def test_a_broken_recording_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"key": "a", "reply": {}, "sha256": ""}\nnot json\n')
    with pytest.raises(BadInput, match=r"line 2 is no recorded reply: 'not json'"):
        Recordings(path)
