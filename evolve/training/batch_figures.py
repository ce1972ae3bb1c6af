"""Figures of a batch of rollouts: success, reward and its spread, length of answers, and speed of sampling."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, pstdev

import numpy as np

from evolve.training.rollouts import Rollout
from memory.records import StopReason
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.wrapped import WrappedPolicy

POSITION = "reward_position_"
"""Before a position of the chain, counted from 0: the mean reward there."""


def rollout_figures(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return what came of some rollouts; tokens are those that the policy wrote in an episode, all turns together.

    `reward_std` is the population's, over all episodes; `groups_differ` the share of groups (one position of one chain,
    under one knowledge) whose rewards are not all the same: the others teach a comparing advantage nothing.
    """
    links = [link for rollout in rollouts for link in rollout.links]
    later = [flags for rollout in rollouts for flags in zip(rollout.used[1:], rollout.claimed[1:], strict=True)]
    written = [link.trajectory.usage.completion_tokens for link in links]
    return _rewards(rollouts) | {
        "success": mean(link.trajectory.success for link in links),
        "steps": mean(len(link.trajectory.steps) for link in links),
        "written": mean(written),
        "written_p50": float(np.percentile(written, 50)),
        "written_p90": float(np.percentile(written, 90)),
        "written_max": float(max(written)),
        "valid": mean(step.error is None for link in links for step in link.trajectory.steps),
        "malformed": mean(link.trajectory.stop is StopReason.FORMAT for link in links),
        "skill_use": mean(used for used, _ in later) if later else 0.0,
        "skill_claims": mean(claimed and not used for used, claimed in later) if later else 0.0,
    }


def _rewards(rollouts: Sequence[Rollout]) -> dict[str, float]:
    groups: dict[tuple[str, int], list[float]] = defaultdict(list)
    positions: dict[int, list[float]] = defaultdict(list)
    for rollout in rollouts:
        for position, parts in enumerate(rollout.rewards):
            groups[rollout.group, position].append(sum(parts.values()))
            positions[position].append(sum(parts.values()))
    every = [reward for some in positions.values() for reward in some]
    told = {"reward": mean(every), "reward_std": pstdev(every)}
    told["groups_differ"] = mean(len(set(some)) > 1 for some in groups.values())
    chained = positions if len(positions) > 1 else {}
    return told | {f"{POSITION}{position}": mean(some) for position, some in sorted(chained.items())}


def tokens_per_s(tokens: int, seconds: float) -> dict[str, float]:
    """Return how many tokens a second rollouts sampled; nothing where all replies were replayed."""
    return {"rollout_tokens_per_s": tokens / seconds} if tokens else {}


class SampledTokens(WrappedPolicy):
    """Counts the tokens that are sampled. Put a `CachedPolicy` around it: a reply that is replayed is not counted."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._tokens, self._began = 0, time.perf_counter()

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return the inner policy's reply."""
        reply = await super().generate(messages, params)
        self._tokens += reply.usage.completion_tokens
        return reply

    @property
    def figures(self) -> dict[str, float]:
        """Tokens a second since this was made."""
        return tokens_per_s(self._tokens, time.perf_counter() - self._began)
