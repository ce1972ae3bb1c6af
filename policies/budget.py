"""Budgets: calls, tokens, money and wall time, counted over every policy that shares one `Budget`.

A budget is checked before a call and charged after it. A call in flight is never cut off (its tokens are paid for), so
tokens, money and time can be overrun by the calls in flight; the number of calls cannot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memory.records import Usage
from policies.errors import BudgetExceeded
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.wrapped import WrappedPolicy


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
    _in_flight: int = field(default=0, init=False, repr=False)
    _started: float = field(default=0.0, init=False, repr=False)
    _landed: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)

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
            ("calls", self.spent.calls + self._in_flight, self.calls),
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

    async def reserve(self) -> None:
        """Take a place for one call. Raises `BudgetExceeded` when a limit has been reached.

        Where calls are in flight it waits for them first: whoever raises ends the others' work, and their calls are
        paid for. One that fails gives its place back.
        """
        while self._in_flight and self.exhausted():
            await self._landed.wait()
        self.check()
        self._in_flight += 1

    def release(self, usage: Usage) -> None:
        """Give the place back and charge what the call used (`Usage()` for one that failed)."""
        self._in_flight -= 1
        self.charge(usage)
        self._landed.set()
        self._landed = asyncio.Event()

    def charge(self, usage: Usage) -> None:
        """Count what was used without a place."""
        self.spent = self.spent + usage


class BudgetedPolicy(WrappedPolicy):
    """A policy that stops at its budget. Put a `CachedPolicy` around it: replies from a cache are free."""

    def __init__(self, policy: Policy, budget: Budget) -> None:
        super().__init__(policy)
        self.budget = budget

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the policy's reply. Raises `BudgetExceeded` before the call when a limit has been reached."""
        await self.budget.reserve()
        usage = Usage()
        try:
            reply = await super().generate(messages, params)
            usage = reply.usage
        finally:
            self.budget.release(usage)
        return reply

    def __repr__(self) -> str:
        return f"BudgetedPolicy({self.policy!r}, {self.budget!r})"
