"""Stability of the knowledge section from one task's first prompt to the next, while the loop learns.

Three online runs in one workspace, batch 1: what a run learned is promoted to `active` before the next one starts, so
that it enters the core at a compaction point; within a run, counters change after every task. The same records, in the
same order, are also rendered with their counters (`[id] helpful=H harmful=M :: content`, as official ACE prompts have
them). Tokens are words and punctuation marks. A token is billed again when it stands behind the first difference from
the section of the task before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.episode.prompting import knowledge
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, run
from memory.records import DeltaOp, Op, Record, Status
from playbooks.kinds.bullet import Bullet, one_line
from policies.protocols import Message, Reply, SamplingParams
from policies.scripted import ScriptedPolicy
from policies.wrapped import WrappedPolicy

LEGS = 3
_TOKEN = re.compile(r"\w+|[^\w\s]")
Tokens = list[str]


@dataclass
class Sections:
    """The knowledge section of each task's first prompt, in the order of the tasks."""

    core: list[Tokens] = field(default_factory=list[Tokens])
    whole: list[Tokens] = field(default_factory=list[Tokens])
    counted: list[Tokens] = field(default_factory=list[Tokens])
    """With counters in the prompt."""

    @property
    def core_kept(self) -> float:
        """Share of core tokens that are followed by the same token at the same position."""
        pairs = [(old, new) for old, new in pairwise(self.core) if old]
        kept = sum(sum(a == b for a, b in zip(old, new, strict=False)) for old, new in pairs)
        return kept / sum(len(old) for old, _ in pairs)

    @property
    def billed(self) -> tuple[int, int]:
        """Tokens billed again over the stream: as rendered, and with counters."""
        return _billed(self.whole), _billed(self.counted)


def _billed(sections: Sequence[Tokens]) -> int:
    total = 0
    for old, new in pairwise(sections):
        same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        total += len(new) - same
    return total


def observe(root: Path, deployment: int, tasks: int, playbook: Mapping[str, int]) -> Sections:
    """Work through `LEGS` runs of `tasks` tasks each and return the sections of all their first prompts.

    `playbook` holds settings of `[playbook]` that differ from the defaults.
    """
    office, sections = Office(OfficeConfig(deployment=deployment)), Sections()
    config = Config.model_validate(
        {
            "root": root,
            "run": {"tasks": tasks, "batch_size": 1, "concurrency": 1, "shuffle": True},
            "playbook": {"reflector": "rules", "curator": "direct", **playbook},
            "environment": {"name": "office", "max_steps": 16},
            "controls": {"no_memory": 0},
        }
    )
    for leg in range(LEGS):
        own = config.model_copy(update={"run": config.run.model_copy(update={"seed": leg})})
        run(own, parts=Parts(policy=Watched(make_worker(office), own, sections), environment=office))
        _promote(config)
    return sections


class Watched(WrappedPolicy):
    """A scripted policy; of each first prompt it takes down the knowledge section."""

    def __init__(self, policy: ScriptedPolicy, config: Config, sections: Sections) -> None:
        super().__init__(policy)
        self._config, self._sections = config, sections

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Take down, then answer."""
        if len(messages) == 1:
            self._take_down(messages[0].content)
        return await super().generate(messages, params)

    def _take_down(self, prompt: str) -> None:
        with open_store(self._config, read_only=True) as store:
            (shown,) = store.events(type="recall")[-1].data["shown"].values()
            pairs = [(store.get(item["record_id"]), item["core"]) for item in shown]
        core: list[Record[Bullet]] = [record for record, is_core in pairs if record is not None and is_core]
        rest = [record for record, is_core in pairs if record is not None and not is_core]
        section = knowledge(core, rest, self.profile)
        if section not in prompt:
            raise RuntimeError(f"the prompt does not hold the section that the journal names: {prompt!r}")
        shown_in_order = [*core, *sorted(rest, key=lambda record: record.number)]
        self._sections.core.append(_TOKEN.findall(knowledge(core, (), self.profile)))
        self._sections.whole.append(_TOKEN.findall(section))
        self._sections.counted.append(_TOKEN.findall("\n".join(map(_with_counters, shown_in_order))))


def _with_counters(record: Record[Bullet]) -> str:
    usage = record.usage
    return f"[{record.label}] helpful={usage.helpful} harmful={usage.harmful} :: {one_line(record.payload.content)}"


def _promote(config: Config) -> None:
    """Make everything that was learned active, as a gate would that found it useful."""
    with open_store(config) as store:
        learned = [r for r in store.view("default").records() if r.status is Status.PROVISIONAL]
        ops = [DeltaOp(op=Op.RESTORE, target_id=record.id, status=Status.ACTIVE) for record in learned]
        refused = store.commit("default", ops, actor="benchmark").refused if ops else ()
    if refused:
        raise RuntimeError(refused[0].reason)
