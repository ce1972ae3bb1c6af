"""Brings a fresh episode to a step of another one, and tells whether it got there: in the world, and token by token."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile

from evolve.seeds import seed_for
from memory.records import Trajectory
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.rl.rows import Turn
from policies.wrapped import WrappedPolicy


class Replaying(WrappedPolicy):
    """Says again what was `said`, then lets `policy` go on, with random numbers of its own."""

    def __init__(self, policy: Policy, said: Iterable[Reply]) -> None:
        super().__init__(policy)
        self._said = deque(said)

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the next of what was said, whatever was asked; after the last one as the inner policy does."""
        if self._said:
            return self._said.popleft()
        seed = None if params.seed is None else seed_for(params.seed, "retry")
        return await super().generate(messages, params.model_copy(update={"seed": seed}))


def repeats(again: Trajectory, base: Trajectory, steps: int) -> bool:
    """Return whether the world answered the first `steps` of an episode as it did those of its base."""
    one, other = (
        [(step.action, step.tool_calls, step.observation, step.error) for step in each.steps[:steps]]
        for each in (again, base)
    )
    return one == other


def guided(turns: Sequence[Turn], fresh: Turn) -> tuple[tuple[Turn, ...], tuple[int, int]] | None:
    """Return a base's turns before its last one as they read with guidance, and the tokens [start, stop) of that.

    `turns` are those of the base up to the step that was done anew, `fresh` the retry's own first turn. None unless it
    read what the base read there with one run of tokens more, before anything was said: without them it is what an
    agent without guidance reads.
    """
    prompt, plain = fresh.prompt_ids, turns[-1].prompt_ids
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, plain, strict=False)))
    stop = start + len(prompt) - len(plain)
    if stop <= start or start > len(turns[0].prompt_ids) or prompt[:start] + prompt[stop:] != plain:
        return None
    told = prompt[start:stop]
    again = (
        turn.model_copy(update={"prompt_ids": (*turn.prompt_ids[:start], *told, *turn.prompt_ids[start:])})
        for turn in turns[:-1]
    )
    return tuple(again), (start, stop)
