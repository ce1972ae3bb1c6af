"""Lets somebody watch pieces of work as they happen: how long, with what, and what came of it.

`@watched("step")` on a function tells the watcher of this context the arguments before and the result, or the error,
after. Nobody watches by default, and then it costs a look-up. A watcher can change nothing, and one that breaks is
dropped: the run goes on. Who watches what is made of it stands elsewhere (`evolve.telemetry`).
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from evolve.usercode import broke_contract, users
from policies.protocols import Message, Reply, SamplingParams
from policies.wrapped import WrappedPolicy

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Watch(Protocol):
    """One piece of work under way; one of the two is called at its end, in the context that began it."""

    def done(self, result: Any) -> None:
        """Take note of what came of it."""
        ...

    def failed(self, error: BaseException) -> None:
        """Take note of what ended it."""
        ...


class Watcher(Protocol):
    """Watches everything that is done in a context and those that are derived from it."""

    def begin(self, kind: str, args: Sequence[Any], options: Mapping[str, Any]) -> Watch | None:
        """Take note that work of this kind begins; None = it is of no interest."""
        ...


class _Holder:
    """Keeps a watcher until it breaks."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher: Watcher | None = watcher

    def begin(self, kind: str, args: Sequence[Any], options: Mapping[str, Any]) -> Watch | None:
        return self._guarded(lambda: self.watcher.begin(kind, args, options) if self.watcher else None)

    def end(self, watch: Watch | None, result: Any, error: BaseException | None = None) -> None:
        if watch is not None:
            self._guarded(lambda: watch.done(result) if error is None else watch.failed(error))

    def _guarded(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except Exception as broken:  # whatever a watcher does wrong, the run is worth more
            _log.warning("%r was dropped, nothing more is watched: %r", self.watcher, broken)
            self.watcher = None
            return None


_holder: ContextVar[_Holder | None] = ContextVar("watcher", default=None)


def watching(watcher: Watcher) -> AbstractContextManager[None]:
    """Let `watcher` watch what is done inside."""
    return _held(_Holder(watcher))


def kept() -> Callable[[], AbstractContextManager[None]]:
    """Return what lets the watcher of this context watch in another: tasks that begin elsewhere do not inherit it."""
    return functools.partial(_held, _holder.get())


@contextmanager
def _held(holder: _Holder | None) -> Generator[None]:
    before = _holder.get()
    _holder.set(holder)
    try:
        yield
    finally:
        _holder.set(before)  # no token: an `Agent` may be closed by another task than the one that opened it


def watched(kind: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Name a function, sync or async, as work of a kind that can be watched."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        if inspect.iscoroutinefunction(function):
            return cast(Callable[P, T], _awaited(kind, function))

        @functools.wraps(function)
        def called(*args: P.args, **options: P.kwargs) -> T:
            if (holder := _holder.get()) is None or holder.watcher is None:
                return function(*args, **options)
            watch = holder.begin(kind, args, options)
            try:
                result = function(*args, **options)
            except BaseException as error:
                holder.end(watch, None, error)
                raise
            holder.end(watch, result)
            return result

        return called

    return decorate


def _awaited(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def called(*args: Any, **options: Any) -> Any:
        if (holder := _holder.get()) is None or holder.watcher is None:
            return await function(*args, **options)
        watch = holder.begin(kind, args, options)
        try:
            result = await function(*args, **options)
        except BaseException as error:
            holder.end(watch, None, error)
            raise
        holder.end(watch, result)
        return result

    return called


class WatchedPolicy(WrappedPolicy):
    """A policy whose calls can be watched. Put a `CachedPolicy` around it: a replayed reply is no call."""

    @watched("chat")
    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the inner policy's reply. Raises what it raises, bugs of the user's own as `UserCodeError`."""
        what = f"generate() of policy {self.name!r}"
        with users(what):
            reply = cast("object", await super().generate(messages, params))
            if not isinstance(reply, Reply):
                raise broke_contract(what, self.policy.generate, reply, "a Reply")
            return reply
