"""The scripted solver as a policy: the office's own fake, for runs without a model.

It acts only; lessons come from the `rules` reflector and the `direct` curator. In a configuration:
`policy.name = "evolve.environments.office.worker:worker"`, `policy.model` = the deployment it works in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from evolve.environments.office import skilled
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.families import SPLITS, Goal
from evolve.environments.office.skilled import SKILLS, Listed
from evolve.environments.office.solver import Knowledge, next_action
from memory.errors import NotFound
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy

if TYPE_CHECKING:
    from evolve.config.model import PolicySection


def worker(section: PolicySection) -> ScriptedPolicy:
    """Return the policy for the deployment that `section.model` names (0 when empty)."""
    return make_worker(Office(OfficeConfig(deployment=int(section.model or 0))))


def make_worker(office: Office, latency_s: float = 0.0) -> ScriptedPolicy:
    """Return a policy that solves `office` as far as the rules in its prompt, and the errors it sees, tell it how.

    Where the prompt lists skills, it calls them and writes those it misses.
    """
    script = script_of(office)
    return ScriptedPolicy(script, name="office-worker", version="1", profile="compact", latency_s=latency_s)


def script_of(office: Office) -> Callable[[Sequence[Message], SamplingParams], str]:
    """Return what the worker answers."""
    goals: dict[str, Goal] = {}

    def script(messages: Sequence[Message], params: SamplingParams) -> str:
        if not goals:
            goals.update((task.instruction, office.goal(task)) for split in SPLITS for task in office.tasks(split))
        lines = messages[0].content.splitlines()
        instruction, listed = lines[-1].removeprefix("task: "), lines[:-1]
        goal = goals.get(instruction) or next((g for text, g in goals.items() if instruction.startswith(text)), None)
        if goal is None:
            raise NotFound(f"deployment {office.config.deployment} has no task {instruction!r}; check `policy.model`")
        observations = [message.content for message in messages[2::2]]
        if SKILLS not in listed:
            return next_action(goal, Knowledge.read(listed), observations)
        at = listed.index(SKILLS)
        skills = [each for line in listed[at + 1 :] if (each := Listed.read(line))]
        return skilled.next_action(goal, Knowledge.read(listed[:at]), observations, skills)

    return script
