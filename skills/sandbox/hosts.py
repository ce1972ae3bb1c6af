"""What host functions raised while code of a sandbox called them."""

from __future__ import annotations

import builtins
import time
from collections.abc import Mapping
from functools import wraps
from typing import Any

from skills.protocols import HostFunction
from skills.sandbox.output import describe

Modules = Mapping[str, Mapping[str, HostFunction]]


class HostCalls:
    """Watches the host functions of one session.

    Inside a sandbox a host exception has its nearest built-in type; the report of an uncaught one gives its own name.
    An interrupt (Ctrl-C, cancellation) belongs to the host, whatever the code did with it.
    """

    def __init__(self) -> None:
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

    def watch(self, function: HostFunction) -> HostFunction:
        """Return `function`, remembering what it raises."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            entered = time.perf_counter()
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self._raised = error
                raise
            except BaseException as interrupt:
                self._interrupt = interrupt
                raise
            finally:
                self._inside += time.perf_counter() - entered

        return call

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
