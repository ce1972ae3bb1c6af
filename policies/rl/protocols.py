"""Contracts of the slots, and the arrays they are given. n trajectories, s steps, p prompts; b rows of t tokens.

The unit is the trajectory. Statistics of a group count each trajectory once, however many steps or tokens it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

from memory.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from policies.rl.rows import TrainRow

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]

FLOATS = ("rewards", "step_rewards", "baselines", "parts", "logprobs", "entropies", "rates", "evidence")
KINDS = dict.fromkeys(FLOATS, "f") | {"truncated": "b", "seen": "b"}
"""numpy's letter for the kind of number each array holds; the others hold integers."""


@dataclass(frozen=True, eq=False)
class Episodes:
    """What the slots see of a batch. Raises `BadInput` for arrays that do not fit each other or are not finite."""

    rewards: Array
    """[n] the return of each trajectory."""
    groups: Ints
    """[n] trajectories of one number are compared; for SAGE one number per (chain, position)."""
    tokens: Ints
    """[n] trained tokens of each trajectory."""
    trajectory: Ints
    """[s] which trajectory each step belongs to, an index into [n]; steps of one trajectory stand in order of time."""
    step_rewards: Array
    """[s] what each step was given."""
    anchors: Ints
    """[s] a hash of the observation that each step answered."""
    baselines: Array | None = None
    """[n] expected reward of each trajectory's prompt before this batch, from a tracker. `spo` needs it."""
    truncated: Flags | None = None
    """[n] True where a limit on tokens or turns cut the trajectory off. The filter `overlong` needs it."""
    parts: Array | None = None
    """[n, k] the parts of each reward, one column a part, in the order of their names. `gdpo` needs it."""
    logprobs: Array | None = None
    """[n] mean log-probability of each trajectory's trained tokens when they were sampled, nats. `xrpo` needs it."""
    actions: Ints | None = None
    """[s] a hash of what each step did. `salt` needs it."""
    entropies: Array | None = None
    """[s] mean entropy of each step's tokens when they were sampled, nats, or an estimate of it. `aepo` needs it."""

    def __post_init__(self) -> None:
        n, s = (len(self.rewards),), (len(self.trajectory),)
        _check("trajectory", n, rewards=self.rewards, groups=self.groups, tokens=self.tokens)
        _check("trajectory", n, baselines=self.baselines, truncated=self.truncated, parts=self.parts)
        _check("trajectory", n, logprobs=self.logprobs)
        _check("step", s, trajectory=self.trajectory, step_rewards=self.step_rewards, anchors=self.anchors)
        _check("step", s, actions=self.actions, entropies=self.entropies)
        if ((self.trajectory < 0) | (self.trajectory >= n[0])).any():
            raise BadInput(
                f"got trajectory indices {self.trajectory.min()} to {self.trajectory.max()}; expected 0 to {n[0] - 1}, "
                "the rows of rewards: number the trajectories of this batch from 0"
            )

    def spread(self, per_trajectory: Array) -> Array:
        """Return [s]: to each step the value of its trajectory, from [n]."""
        return per_trajectory[self.trajectory]


def _check(unit: str, shape: tuple[int], **arrays: npt.NDArray[np.generic] | None) -> None:
    """Raise `BadInput` for arrays that have not one entry for each unit, are of another kind, or not finite."""
    for name, values in arrays.items():
        if values is None:
            continue
        if values.shape[:1] != shape or values.ndim != (2 if name == "parts" else 1):
            raise BadInput(f"got {name} of shape {values.shape}; expected {shape}: one entry for each {unit}")
        if values.dtype.kind != KINDS.get(name, "i"):
            raise BadInput(f"got {name} of {values.dtype}; expected the dtype that `Array`, `Ints` or `Flags` name")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            raise BadInput(
                f"got {name}[{at}] = {values.flat[at]}; expected finite numbers: drop what could not be scored, or "
                "score it"
            )


@dataclass(frozen=True, eq=False)
class PromptStats:
    """What samplers and allocators know of p prompts. Raises `BadInput` for a rate outside [0, 1]."""

    rates: Array
    """[p] estimated success rate; what stands where nothing was seen is the prior."""
    seen: Flags
    """[p] False for a prompt that was never rolled out."""
    evidence: Array | None = None
    """[p] rollouts that each rate counts for, prior included: a + b of a Beta distribution. `vade` needs it."""

    def __post_init__(self) -> None:
        _check("prompt", (len(self.rates),), rates=self.rates, seen=self.seen, evidence=self.evidence)
        if not ((self.rates >= 0) & (self.rates <= 1)).all():
            raise BadInput(f"got rates {self.rates}; expected shares in [0, 1]: successes / attempts")


@dataclass(frozen=True)
class Retry:
    """An episode, and the same done again from one of its steps with guidance."""

    base: TrainRow
    retry: TrainRow
    """Repeats the base up to `step`."""
    step: int
    """Index of the first step that was done anew."""
    guidance: tuple[int, int] = (0, 0)
    """Tokens [start, stop) of the retry's prompt and completion that guided it."""
    reflection: TrainRow | None = None
    """The reply that found the step and wrote the guidance."""


class AdvantageEstimator(Protocol):
    """How much better each step was than what it is compared with."""

    def __call__(self, episodes: Episodes, /) -> Array:
        """Return [s], one advantage per step; the trainer repeats it over the step's tokens."""
        ...


class PolicyLoss(Protocol):
    """What is minimised."""

    @property
    def aggregation(self) -> Aggregation | None:
        """How its token losses become one number; None = as `aggregation_of` says."""
        ...

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, /
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t] and metrics; `mask` is True where the agent wrote the token."""
        ...


def aggregation_of(loss: PolicyLoss) -> Aggregation:
    """Return how the token losses of a loss become one number: `token-mean` where it does not say."""
    return loss.aggregation or "token-mean"


class PromptSampler(Protocol):
    """Which prompts come next."""

    def __call__(self, stats: PromptStats, /) -> Array:
        """Return [p] positive weights, not normalised: prompts are drawn in proportion."""
        ...


class RolloutAllocator(Protocol):
    """How many rollouts each prompt gets."""

    def allocate(self, stats: PromptStats, budget: int) -> Ints:
        """Return [p] counts that sum to `budget`. Raises `BadInput` for a budget that cannot be spent so."""
        ...


class BranchDecision(Protocol):
    """From which turns of a rollout others may be branched."""

    def __call__(self, rises: Array, draws: Array, /) -> Flags:
        """Return [t], True for each turn that may be: turns of one rollout after its first, in order of time.

        `rises` is by how much the entropy of each is above that of the first, nats a token, `draws` a number for each
        from a uniform distribution on [0, 1).
        """
        ...


class GroupFilter(Protocol):
    """Which trajectories are trained on."""

    def keep(self, episodes: Episodes) -> Flags:
        """Return [n], True for what stays. Ask before advantages are computed."""
        ...


class TrajectoryTransform(Protocol):
    """What becomes of retried episodes before they are compared."""

    def __call__(self, retries: Sequence[Retry], /) -> tuple[TrainRow, ...]:
        """Return the rows to train on, in order of the retries.

        A row is named as the one that it was made of, with what tells it from others after a `/`.
        """
        ...


class OffPolicyCorrection(Protocol):
    """Weights for tokens drawn by another policy (an engine, an older version) than the one the trainer scores with."""

    def __call__(self, old_logp: Tensor, rollout_logp: Tensor, mask: Tensor, /) -> Tensor:
        """Return weights [b, t] without gradient, 0 where `mask` is False; token losses are multiplied by them."""
        ...
