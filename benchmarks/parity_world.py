"""A world of short episodes whose grades differ among rollouts: what was said counts, by the parity of its letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import Outcome, Task
from policies.protocols import ToolSpec

STEPS = 2
PLAYED = """\
[policy]
name = "pocket"
max_tokens = 24
temperature = 1.5

[environment]
name = "benchmarks.parity_world:Parity"
max_steps = 3

[memory]
index = "exact"

[playbook]
enabled = false
"""
"""Settings of a workspace in which the pocket model plays it, hot enough that the rollouts of a task differ."""


@dataclass
class ParityEpisode:
    """Two actions; even sums of letters succeed."""

    total: int = 0
    steps: int = 0

    async def step(self, action: Action) -> StepResult:
        self.total += sum(map(ord, action.text))
        self.steps += 1
        return StepResult(observation=f"said {self.total % 7}", done=self.steps == STEPS)

    async def grade(self) -> Outcome:
        success = self.total % 2 == 0
        return Outcome(success=success, reward=float(success))

    async def close(self) -> None:
        pass


class Parity:
    """Twelve train tasks in six scenarios of two, and none else."""

    name = "parity"
    action_format: ActionFormat = "code"
    tools: tuple[ToolSpec, ...] = ()

    def describe(self, profile: str) -> str:
        return ""

    def tasks(self, split: str) -> Sequence[Task]:
        return [
            Task(id=f"{split}-{at}", instruction=f"Say something about {at}.", scenario=f"s{at // 2}", split=split)
            for at in range(12)
            if split == "train"
        ]

    def start(self, task: Task, seed: int = 0) -> ParityEpisode:
        return ParityEpisode()


class UnpaidEpisode(ParityEpisode):
    """All fail."""

    async def grade(self) -> Outcome:
        """Return a failure."""
        return Outcome(success=False, reward=0.0)


class Unpaid(Parity):
    """The same world, where nothing that is said makes a difference."""

    def start(self, task: Task, seed: int = 0) -> ParityEpisode:
        """Return an episode."""
        return UnpaidEpisode()
