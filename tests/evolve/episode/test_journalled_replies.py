"""Replies of a run: those that arrive together are journalled together, and each before it is used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evolve.episode.journalled_replies import RunReplies, about
from memory.embedders.hashing import HashingEmbedder
from memory.episodes import NewReply
from memory.errors import JournalError
from memory.store import Store
from policies.cache import CachedPolicy
from policies.protocols import Message, SamplingParams
from policies.roles import ACTING
from policies.scripted import ScriptedPolicy

TOGETHER = 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "ws", embedder=HashingEmbedder(), index="exact") as opened:
        yield opened


def tasks(store: Store) -> list[str]:
    return [row[0] for row in store.journal.query("SELECT task_id FROM replies ORDER BY seq")]


async def test_replies_that_arrive_together_take_one_transaction_and_keep_their_tasks(store: Store) -> None:
    replies, statements = RunReplies(store, "run"), list[str]()
    database: Any = store.journal.conn

    async def arrives(number: int) -> dict[str, str] | None:
        with about(f"task-{number}"):
            await replies.put_reply(f"{number}", {"text": f"said {number}"})
        return replies.get_reply(f"{number}")

    database.set_trace_callback(statements.append)
    found = await asyncio.gather(*map(arrives, range(TOGETHER)))
    database.set_trace_callback(None)
    assert found == [{"role": ACTING, "text": f"said {number}"} for number in range(TOGETHER)]
    assert tasks(store) == [f"task-{number}" for number in range(TOGETHER)]
    assert statements.count("COMMIT") == 1


async def test_an_episode_that_is_cancelled_takes_no_others_reply_along(store: Store) -> None:
    replies = RunReplies(store, "run")
    cancelled, others = (asyncio.ensure_future(replies.put_reply(key, {"text": key})) for key in "ab")
    await asyncio.sleep(0)
    cancelled.cancel()
    await others
    assert cancelled.cancelled()
    assert [replies.get_reply(key) for key in "ab"] == [{"role": ACTING, "text": key} for key in "ab"]


async def test_no_reply_is_used_that_could_not_be_journalled(store: Store) -> None:
    replies = RunReplies(store, "run")
    asked = [Message(role="user", content="hi")]
    policy = CachedPolicy(ScriptedPolicy(lambda *_: store.close() or "said"), replies)
    with pytest.raises(JournalError):
        await policy.generate(asked, SamplingParams())
    together = [replies.put_reply(f"{number}", {}) for number in range(3)]
    found = await asyncio.gather(*together, return_exceptions=True)
    assert [type(each) for each in found] == [JournalError] * 3


def test_of_two_replies_under_one_key_the_first_stays(store: Store) -> None:
    store.put_replies([NewReply("k", {"text": text}, "run", "task-0") for text in ("first", "second")])
    assert store.get_reply("k") == {"text": "first"}
    assert len(tasks(store)) == 1
