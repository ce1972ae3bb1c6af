"""Budgets: calls, tokens, money and wall time, counted over every policy that shares one `Budget`.

A budget is checked before a call and charged after it. A call that comes too late, or whose server does not answer,
ends the work of all; it is told once the calls in flight have landed, which are paid for. So tokens, money and time can
be overrun by the calls in flight; the number of calls cannot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from memory.records import Usage
from policies.errors import BudgetExceeded, PolicyUnavailable
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.wrapped import WrappedPolicy

T = TypeVar("T")


@dataclass
class Budget:
    """Limits (None = none) and what has been spent. To resume a run, pass what its first part had spent."""

    calls: int | None = None
    tokens: int | None = None
    """Prompt and completion tokens together."""
    cost_usd: float | None = None
    seconds: float | None = None
    """Wall time from construction on, plus `earlier_s`."""
    spent: Usage = field(default_factory=Usage)
    earlier_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    together: bool = True
    """Whether a server that does not answer one call ends the work of all; if not, each call stands for itself."""
    _gone: PolicyUnavailable | None = field(default=None, init=False, repr=False)
    """Which call ended the work of all."""
    _flying: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]], init=False, repr=False)
    """Calls in flight; each is done when it has landed."""
    _started: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds used so far, those of earlier parts of the run included."""
        return self.earlier_s + self.clock() - self._started

    def exhausted(self) -> str:
        """Return which limit has been reached, in words, or an empty string."""
        tokens = self.spent.prompt_tokens + self.spent.completion_tokens
        uses: tuple[tuple[str, float, float | None], ...] = (
            ("calls", self.spent.calls + len(self._flying), self.calls),
            ("tokens", tokens, self.tokens),
            ("cost_usd", self.spent.cost_usd, self.cost_usd),
            ("seconds", self.elapsed_s, self.seconds),
        )
        return "; ".join(
            f"{used:.6g} of {limit:.6g} {name}" for name, used, limit in uses if limit is not None and used >= limit
        )

    def check(self) -> None:
        """Raise `BudgetExceeded` when a limit has been reached."""
        if reached := self.exhausted():
            raise BudgetExceeded(f"budget used up: {reached}; raise the limit and resume the run")

    async def _reserved(self) -> asyncio.Future[None]:
        """Return a place for one call, or raise as `charged` once the calls in flight have landed."""
        while self._flying and (self._gone or self.exhausted()):
            await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
        if self._gone:
            raise PolicyUnavailable(str(self._gone)) from self._gone
        self.check()
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flying.add(place)
        return place

    async def charged(self, call: Callable[[], Awaitable[T]], used: Callable[[T], Usage]) -> T:
        """Return what a call comes to, and charge what it `used`; one that fails costs nothing.

        Raises what the call raises, and before the call `BudgetExceeded` where a limit has been reached, and
        `PolicyUnavailable` where that ended the work of all.
        """
        try:
            return await self._flown(call, used)
        except PolicyUnavailable as error:
            if self.together:
                self._gone = self._gone or error
                while self._flying:
                    await asyncio.wait(self._flying)
            raise

    async def _flown(self, call: Callable[[], Awaitable[T]], used: Callable[[T], Usage]) -> T:
        place, usage = await self._reserved(), Usage()
        try:
            found = await call()
            usage = used(found)
            return found
        finally:
            self._flying.remove(place)
            self.charge(usage)
            place.set_result(None)

    def charge(self, usage: Usage) -> None:
        """Count what was used."""
        self.spent = self.spent + usage


class BudgetedPolicy(WrappedPolicy):
    """A policy that stops at its budget. Put a `CachedPolicy` around it: replies from a cache are free."""

    def __init__(self, policy: Policy, budget: Budget) -> None:
        super().__init__(policy)
        self.budget = budget

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the policy's reply. Raises `BudgetExceeded` before the call when a limit has been reached."""
        return await self.budget.charged(lambda: self.policy.generate(messages, params), lambda reply: reply.usage)

    def __repr__(self) -> str:
        return f"BudgetedPolicy({self.policy!r}, {self.budget!r})"
