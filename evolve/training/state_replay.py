"""Brings a fresh episode to a step of another one, and tells whether it got there: in the world, and token by token."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.seeds import seed_for
from evolve.training.rollouts import ChainSpec
from evolve.training.turns import Replies
from memory.records import Trajectory
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.rl.rows import Turn
from policies.wrapped import WrappedPolicy


@dataclass(frozen=True)
class Calls:
    """How an iteration's episodes are done: `policy` keeps its replies where `replies` finds them."""

    policy: Policy
    acting: RolloutConfig
    replies: Replies


class Dropped(Exception):
    """An episode is not done again, or in vain; the reason is one of those that its caller counts."""


@dataclass(frozen=True)
class Anew:
    """What tells an episode from the one that it repeats."""

    id: str
    name: str
    """Its random numbers are derived from the base's by this."""
    guidance: str = ""


async def anew(base: Trajectory, turns: Sequence[Turn], setting: ChainSpec, calls: Calls, how: Anew) -> Trajectory:
    """Return an episode done anew from the last of the base's `turns`, in the world as the base found it.

    Raises `Dropped`: `not_graded`, or `diverged` where the world answered the same steps otherwise or ended there.
    """
    shown = setting.recall(base.task)
    attempt = Attempt(
        id=how.id,
        task=base.task,
        seed=base.seed,
        core=shown.core,
        recalled=shown.recalled,
        injected=shown.injected,
        exemplars=shown.exemplars,
        guidance=how.guidance,
    )
    said = (_kept(base.steps[turn.step].reply_key, calls.replies) for turn in turns[:-1])
    again = await rollout(setting.environment, Replaying(calls.policy, said, how.name), attempt, calls.acting)
    if again.outcome is None:
        raise Dropped("not_graded")
    if len(again.steps) <= turns[-1].step or not repeats(again, base, turns[-1].step):
        raise Dropped("diverged")
    return again


def _kept(key: str, replies: Replies) -> Reply:
    return Reply.model_validate((replies(key) or {})["reply"] | {"key": key})


class Replaying(WrappedPolicy):
    """Says again what was `said`, then lets `policy` go on, with random numbers derived by `name`."""

    def __init__(self, policy: Policy, said: Iterable[Reply], name: str) -> None:
        super().__init__(policy)
        self._said, self._name = deque(said), name

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the next of what was said, whatever was asked; after the last one as the inner policy does."""
        if self._said:
            return self._said.popleft()
        seed = None if params.seed is None else seed_for(params.seed, self._name)
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
