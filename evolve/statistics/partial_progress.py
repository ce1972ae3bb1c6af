"""Partial progress, where success alone is too coarse: a task that needs two rules passes with neither alone.

Two arms of one task are compared in this order: success; then the share of checks that passed; then how few actions
failed. A change that is no better in any of them moved nothing. Of a change that is code alone the tokens that the
agent wrote come last, in tasks that passed: a skill that only makes these shorter does what it is for
(`Marks.thrift`). The sign of the
comparison is all that is counted, so the sign test (exact McNemar) over tasks stays exact: without an effect, further
and less far are equally likely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evolve.statistics.paired import Passed, step
from memory.records import Trajectory

_ACTION = 1000
"""An action that failed weighs a thousandth of all checks: less than any check, whatever their number."""
_TOKEN = 10**8
"""A token weighs less than an action that failed, up to 100,000 of them."""
_EQUAL = 1e-9


class Marks(dict[str, bool | None]):
    """Task id -> pass, fail, or None = missing, and beside it how far each graded task came, in [-1, 1].

    `tokens` is what the policy wrote in each; they count where the change that was run has `thrift`.
    """

    def __init__(
        self,
        passed: Passed,
        reach: Mapping[str, float] | None = None,
        *,
        tokens: Mapping[str, int] | None = None,
        thrift: bool = False,
    ) -> None:
        super().__init__(passed)
        self.reach, self.tokens, self.thrift = dict(reach or {}), dict(tokens or {}), thrift

    def take(self, more: Marks) -> None:
        """Add the marks of other tasks."""
        self.update(more)
        self.reach |= more.reach
        self.tokens |= more.tokens
        self.thrift = self.thrift or more.thrift

    def far(self, task: str, thrift: bool) -> float:
        """Return how far a task came, less what was written where that counts: in what passed."""
        return self.reach[task] - (self.tokens.get(task, 0) / _TOKEN if thrift and self.get(task) else 0.0)


def reach(trajectory: Trajectory) -> float | None:
    """Return the share of checks that passed, less a thousandth for each action that failed; None when not graded."""
    if trajectory.outcome is None:
        return None
    checks = trajectory.outcome.checks
    share = sum(check.passed for check in checks) / len(checks) if checks else trajectory.outcome.reward
    return share - sum(each.error is not None for each in trajectory.steps) / _ACTION


def reaches(base: Passed, candidate: Passed) -> dict[str, tuple[float, float]]:
    """Return task id -> (reach in the base, in the candidate), for the tasks whose reach is known in both arms."""
    if not isinstance(base, Marks) or not isinstance(candidate, Marks):
        return {}
    both, thrift = [task for task in base.reach if task in candidate.reach], candidate.thrift
    return {task: (base.far(task, thrift), candidate.far(task, thrift)) for task in both}


def further(
    cohort: Sequence[str], base: Passed, candidate: Passed, reached: Mapping[str, tuple[float, float]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tasks that came further with the candidate, and those that came less far, in the cohort's order."""
    signs = {task: _sign(task, base, candidate, reached) for task in cohort}
    return tuple(t for t in cohort if signs[t] > 0), tuple(t for t in cohort if signs[t] < 0)


def compared(task: str, base: Passed, candidate: Passed) -> int:
    """Return +1 where a task came further with the candidate, -1 where less far, else 0."""
    return _sign(task, base, candidate, reaches(base, candidate))


def _sign(task: str, base: Passed, candidate: Passed, reached: Mapping[str, tuple[float, float]]) -> int:
    flipped = step(base.get(task), candidate.get(task))
    if flipped or task not in reached:
        return flipped
    before, after = reached[task]
    return (after - before > _EQUAL) - (before - after > _EQUAL)
