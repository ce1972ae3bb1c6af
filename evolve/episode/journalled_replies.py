"""Ties a journalled model reply to its run and task, so that resume finds it and forgetting a task purges it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

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

    def put_reply(self, key: str, reply: dict[str, Any]) -> None:
        """Journal a reply before it is used."""
        self._store.put_reply(key, {**reply, "role": self._role}, run_id=self._run_id, task_id=_task.get())

    def get_reply(self, key: str) -> dict[str, Any] | None:
        """Return a journalled reply, or None."""
        return self._store.get_reply(key)
