"""A world that shows secrets to an agent that repeats them; each task shows another kind."""

from __future__ import annotations

from collections.abc import Sequence

from evolve.config.model import PolicySection
from evolve.errors import EnvironmentFailure
from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import Check, Outcome, Task
from policies.protocols import Message, SamplingParams, ToolSpec
from policies.scripted import ScriptedPolicy
from tests.memory.fake_secrets import SECRETS, whole


class LeakyEpisode:
    """Shows the secret as an error at first, then as an answer."""

    def __init__(self, kind: str) -> None:
        self.kind, self.steps = kind, 0

    async def step(self, action: Action) -> StepResult:
        self.steps += 1
        said = f"the answer is {whole(self.kind)} today"
        if self.steps == 1:
            return StepResult(observation=f"error: {said}", error=f"ValueError: {said}")
        if self.kind == "github":
            raise EnvironmentFailure(said)
        return StepResult(observation=said, done=True)

    async def grade(self) -> Outcome:
        return Outcome(success=False, reward=0.0, checks=(Check(name="kept", passed=False, detail=whole(self.kind)),))

    async def close(self) -> None:
        """Holds nothing."""


class Leaky:
    """One task for each kind of secret, which its instruction shows as well."""

    name = "leaky"
    action_format: ActionFormat = "text"
    tools: tuple[ToolSpec, ...] = ()

    def describe(self, profile: str) -> str:
        return "Repeat what you are told."

    def tasks(self, split: str) -> Sequence[Task]:
        return [
            Task(id=f"{split}-{at}", instruction=f"Say {whole(kind)} again.", scenario=kind, split=split)
            for at, kind in enumerate(SECRETS)
            if split == "train"
        ]

    def start(self, task: Task, seed: int = 0) -> LeakyEpisode:
        return LeakyEpisode(task.scenario)


def parrot(section: PolicySection) -> ScriptedPolicy:
    """Return a policy that repeats the last message."""

    def said(messages: Sequence[Message], params: SamplingParams) -> str:
        return messages[-1].content[-400:]

    return ScriptedPolicy(said, name="parrot", profile="full", version="1")
