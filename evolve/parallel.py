"""Run several coroutines, and hold as few episodes open at once as their environment wants."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_SLOTS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], asyncio.Semaphore]] = WeakKeyDictionary()


async def all_of(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results in the order of `coroutines`; the first error cancels the others and is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def slot(environment: Any) -> AbstractAsyncContextManager[Any]:
    """Return what an episode holds while it is open: one of the environment's `max_concurrency` places, if it has any.

    The places are shared by all environments of one name and number on an event loop, since what cannot be shared is
    global.
    """
    most = getattr(environment, "max_concurrency", None)
    if most is None:
        return nullcontext()
    places = _SLOTS.setdefault(asyncio.get_running_loop(), {})
    return places.setdefault((environment.name, most), asyncio.Semaphore(most))
