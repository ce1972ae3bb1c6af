"""Base of the methods' roles: how a reflection of one episode opens, and what a curator of episodes is given."""

from __future__ import annotations

from collections.abc import Callable

from memory.records import Reflection, Trajectory, Trust
from playbooks.notebook.failure_judge import Finding, by_outcome, by_policy
from policies.protocols import Policy


async def opened(policy: Policy, author: str, trajectory: Trajectory, label_free: bool) -> tuple[Reflection, Finding]:
    """Return (empty reflection, how the episode went): by its grade, with `label_free` by the policy's own judgement.

    An episode that nobody could judge comes back as an unparsed reflection and a finding that says `missing`.
    """
    blank = Reflection(trajectory_id=trajectory.id, task_id=trajectory.task.id, author=author)
    finding = await by_policy(policy, trajectory) if label_free else by_outcome(trajectory)
    if finding.missing:
        blank = blank.model_copy(update={"parsed": False, "raw": finding.raw or "no label"})
    return blank, finding


class EpisodeCurator:
    """A curator that reads the episodes again: `episodes` returns the trajectory of an id.

    What a model said and could not be used is handed to `keep` as a raw reflection.
    """

    def __init__(
        self,
        policy: Policy,
        episodes: Callable[[str], Trajectory | None],
        *,
        trust: Trust = Trust.SELF_JUDGED,
        keep: Callable[[Reflection], object] = lambda _: None,
    ) -> None:
        self._policy = policy
        self._episodes = episodes
        self._trust = trust
        self._keep = keep
