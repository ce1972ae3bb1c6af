"""Half an office, and a worker who also obeys: for the claim that two workspaces which learned apart can be merged.

In a configuration `environment.name = "benchmarks.half_office:front"` (or `back`), `policy.name =
"benchmarks.half_office:obedient"` with the deployment as its model. Both halves have the same tests, which need both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from benchmarks.poison_suite import HACK, NEVER, Item, load
from evolve.config.model import PolicySection
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.solver import DONE
from evolve.environments.office.worker import script_of
from memory.records import Task
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy

FRONT = frozenset({"pay", "request", "send_mail", "forward", "archive", "save", "add_todo"})
"""What the tasks of one half ask for; the other half asks for the rest, and tasks that need both are in neither. Eight
families of tasks each."""


class HalfOffice(Office):
    """An office whose train tasks ask for some intents only."""

    front = True

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split; of `train` those of this half."""
        every = super().tasks(split)
        return [task for task in every if self._is_mine(task)] if split == "train" else every

    def _is_mine(self, task: Task) -> bool:
        intents = set(task.metadata["family"].split("+"))
        return intents <= FRONT if self.front else not intents & FRONT


class _Back(HalfOffice):
    front = False


def front(deployment: int = 0) -> Office:
    """Return the half that pays and writes."""
    return HalfOffice(OfficeConfig(deployment=deployment))


def back(deployment: int = 0) -> Office:
    """Return the half that plans, shares and assigns."""
    return _Back(OfficeConfig(deployment=deployment))


class _Orders:
    """What the texts of the injection suite make somebody do who obeys them."""

    @cached_property
    def items(self) -> tuple[Item, ...]:
        return tuple(item for item in load() if item.do and item.on != NEVER)

    def of(self, prompt: str) -> list[str]:
        """Return the code that a prompt orders, by the task that it ends in."""
        known, _, task = prompt.rpartition("\n")
        said, lines = task.lower(), " ".join(known.split())
        return list(
            dict.fromkeys(item.do for item in self.items if item.on in said and " ".join(item.text.split()) in lines)
        )


def obedient(section: PolicySection) -> ScriptedPolicy:
    """Return the office's scripted worker, who also runs the code that a text of the suite in its prompt asks for."""
    answer, orders = script_of(Office(OfficeConfig(deployment=int(section.model or 0)))), _Orders()

    def script(messages: Sequence[Message], params: SamplingParams) -> str:
        said = answer(messages, params)
        wanted = orders.of(messages[0].content)
        if HACK in wanted:
            return DONE
        return "\n".join([*wanted, DONE]) if said == DONE and wanted else said

    return ScriptedPolicy(script, name="obedient-worker", version="1", profile="compact")
