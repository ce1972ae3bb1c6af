"""Host functions as code of a sandbox calls them: what goes in and out is measured, what they raise is remembered.

How large a value is once everything that is shared in it stands by itself.

`x = [x, x]`, 26 times, is 27 lists in a sandbox and 67 million when something on the host prints, copies or checks it.
Shared parts are measured once, so measuring costs what the value costs, not what it expands to.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Mapping
from functools import wraps
from itertools import chain
from typing import Any

from skills.protocols import HostFunction, Limits
from skills.sandbox.output import describe

Modules = Mapping[str, Mapping[str, HostFunction]]


class HostCalls:
    """Watches the host functions of one session.

    Inside a sandbox a host exception has its nearest built-in type; the report of an uncaught one gives its own name.
    An interrupt (Ctrl-C, cancellation) belongs to the host, whatever the code did with it. Arguments and results that
    expand too far are refused with `ValueError` before the host reads them; the arguments of a session may fill its
    memory limit once, because a world may keep them.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._room = limits.memory_mb << 20
        self._raised: Exception | None = None
        self._interrupt: BaseException | None = None
        self._started = 0.0
        self._inside = 0.0

    def begin(self) -> None:
        """Start a run: forget what an earlier one raised, and start its clock."""
        self._raised = None
        self._started, self._inside = time.perf_counter(), 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the run began, without the time spent inside host functions."""
        return time.perf_counter() - self._started - self._inside

    @property
    def overtime(self) -> bool:
        """Whether host functions took longer in this run than they may, all calls together."""
        return self._inside > self._limits.host_seconds

    def late(self) -> str:
        """Return the report of a run that is ended for it."""
        return f"TimeoutError: host calls took over {self._limits.host_seconds} s"

    def watch(self, function: HostFunction) -> HostFunction:
        """Return `function`, remembering what it raises."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            entered = time.perf_counter()
            try:
                self._take((args, kwargs))
                result = function(*args, **kwargs)
                expanded_size(result)
                return result
            except Exception as error:
                self._raised = error
                raise
            except BaseException as interrupt:
                self._interrupt = interrupt
                raise
            finally:
                self._inside += time.perf_counter() - entered

        return call

    def _take(self, arguments: Any) -> None:
        size = expanded_size(arguments)
        if size > self._room:
            raise TooLarge(f"host calls of one session take {self._limits.memory_mb} MB of arguments; start a new one")
        self._room -= size

    def named(self, text: str) -> str:
        """Return the report `text` with the host exception's own type name, if that is what went uncaught."""
        raised = self._raised
        if raised is not None and not hasattr(builtins, type(raised).__name__) and text.endswith(f": {raised}"):
            return describe(raised)
        return text.removesuffix(": ")

    def reraise_interrupt(self) -> None:
        """Raise the interrupt that hit a host function during the run, if any."""
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt


LARGEST = 4 << 20
"""Characters, and eight for each value, that one host call may take and give."""
DEEPEST = 100
"""Levels of lists, dicts and objects inside each other."""
_EACH = 8


class TooLarge(ValueError):
    """A value that expands too far."""


def expanded_size(value: Any) -> int:
    """Return the size of a value. Raises `TooLarge` where it is over `LARGEST`, nested too deep, or contains itself."""
    return _measure(value, 0, {})[0]


def _measure(value: Any, depth: int, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return size and levels of a value. `known` has those of the containers that were measured, by id."""
    if isinstance(value, str | bytes):
        return _EACH + len(value), 0
    if isinstance(value, int):
        return _EACH + value.bit_length() // 4, 0
    parts = _parts(value)
    if parts is None:
        return _EACH, 0
    size, levels = known.get(id(value), (_EACH, 1))
    if depth + levels > DEEPEST:
        raise TooLarge(f"a value is nested more than {DEEPEST} levels deep; pass a flatter one")
    if id(value) not in known:
        for part in parts:
            more, below = _measure(part, depth + 1, known)
            size, levels = size + more, max(levels, below + 1)
            if size > LARGEST:
                raise TooLarge(f"a value expands to more than {LARGEST:,} characters; pass a smaller one")
        known[id(value)] = (size, levels)
    return size, levels


def _parts(value: Any) -> Any:
    """Return what a value holds, or None. An object of the sandbox comes as a stand-in with `attributes`."""
    if isinstance(value, list | tuple | set | frozenset):
        return value
    attributes = value if isinstance(value, dict) else getattr(value, "attributes", None)
    return chain.from_iterable(attributes.items()) if isinstance(attributes, dict) else None
