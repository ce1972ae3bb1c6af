"""Detect a collapsed training: for several iterations on end its figures are beyond a limit.

Collapses that users report begin with length: answers grow, actions stop being valid, success follows (verl-agent issue
188). Limits are wide, so that learning does not meet them: in SAGE's own table (arXiv 2512.17102) answers of a healthy
training grow 2.7 times. Limits that are shares compare with the mean of the first `patience` iterations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Literal, NamedTuple

from evolve.config.training import TrainingLimits

Figures = Mapping[str, float]


class Guard(NamedTuple):
    """One limit on one figure."""

    figure: str
    limit: str
    bound: Literal["most", "least"]
    shares: bool
    """The limit is a share of what the figure was at the start."""
    says: str


GUARDS = (
    Guard("written", "max_growth", "most", shares=True, says="tokens written in an episode"),
    Guard("valid", "min_valid", "least", shares=True, says="share of actions without an error"),
    Guard("entropy", "min_entropy", "least", shares=False, says="entropy of a token"),
    Guard("entropy", "max_entropy", "most", shares=False, says="entropy of a token"),
    Guard("rollout_kl", "max_kl", "most", shares=False, says="divergence from the policy that sampled"),
    Guard("skill_use", "min_skill_use", "least", shares=True, says="share of tasks that use an earlier skill"),
)


def collapse(told: Sequence[Figures], limits: TrainingLimits) -> str:
    """Return why training should stop after the iterations `told`, empty where it should not."""
    last = told[-limits.patience :]
    for guard in GUARDS if len(last) == limits.patience else ():
        bound = _bound(guard, told, limits)
        if bound is not None and all(_beyond(guard, figures, bound) for figures in last):
            found = ", ".join(f"{figures[guard.figure]:.3g}" for figures in last)
            return (
                f"{guard.says} ({guard.figure}) was {found} in the last {len(last)} iterations, expected at "
                f"{guard.bound} {bound:.3g} (train.limits.{guard.limit})"
            )
    return ""


def sound(told: Sequence[Figures], limits: TrainingLimits) -> bool:
    """Return whether the last iteration is within all limits."""
    bounds = ((guard, _bound(guard, told, limits)) for guard in GUARDS)
    return not any(bound is not None and _beyond(guard, told[-1], bound) for guard, bound in bounds)


def _bound(guard: Guard, told: Sequence[Figures], limits: TrainingLimits) -> float | None:
    """Return the limit as a figure; None while the start that it is a share of still goes on."""
    limit = float(getattr(limits, guard.limit))
    if not guard.shares:
        return limit
    if len(told) <= limits.patience:
        return None
    return limit * mean(figures[guard.figure] for figures in told[: limits.patience])


def _beyond(guard: Guard, figures: Figures, bound: float) -> bool:
    """Return whether a figure is there and not within its bound; one that is no number is not."""
    value = figures.get(guard.figure)
    if value is None:
        return False
    return not (value <= bound if guard.bound == "most" else value >= bound)
