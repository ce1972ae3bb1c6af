"""Ties a journalled model reply to its run and task, so that resume finds it and forgetting a task purges it.

Replies that arrive in the same turn of the event loop are journalled in one transaction: among hundreds of episodes at
a time that halves what a reply costs (docs/LOG.md). Each is in the journal before it is used, as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from memory.episodes import NewReply
from memory.store import Store
from policies.roles import ACTING

_task: ContextVar[str] = ContextVar("task", default="")


@contextmanager
def about(task_id: str) -> Generator[None]:
    """Mark the model calls made inside as made for a task."""
    token = _task.set(task_id)
    try:
        yield
    finally:
        _task.reset(token)


def asked_about() -> str:
    """Return the task that model calls made here are made for; empty = none."""
    return _task.get()


class RunReplies:
    """The reply store of one run, for `policies.cache.CachedPolicy`."""

    def __init__(self, store: Store, run_id: str, role: str = ACTING) -> None:
        """Take the run and the role whose calls these are; what each role used is counted by it."""
        self._store = store
        self._run_id = run_id
        self._role = role
        self._waiting: list[NewReply] = []
        self._journalled: asyncio.Future[None] | None = None

    async def put_reply(self, key: str, reply: dict[str, Any]) -> None:
        """Journal a reply, with the others that arrive now."""
        self._waiting.append(NewReply(key, {**reply, "role": self._role}, self._run_id, _task.get()))
        if self._journalled is None:
            loop = asyncio.get_running_loop()
            self._journalled = loop.create_future()
            loop.call_soon(self._journal)
        await asyncio.shield(self._journalled)  # an episode that is cancelled takes no other's reply along

    def _journal(self) -> None:
        waiting, self._waiting = self._waiting, []
        done, self._journalled = self._journalled, None
        assert done is not None
        try:
            self._store.put_replies(waiting)
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    def get_reply(self, key: str) -> dict[str, Any] | None:
        """Return a journalled reply, or None."""
        return self._store.get_reply(key)
