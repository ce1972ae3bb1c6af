"""Chooses what an episode is shown: the core, then what was recalled for its task, under one token budget.

Rules, notes and exemplars share the budget, what was measured to help first; skills have one of their own.
Of two that contradict each other, one that was refuted is not shown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.config.model import Config
from evolve.episode.exemplars.shown_exemplars import nearest
from evolve.episode.instrumentation import watched
from evolve.episode.journal_evidence import evidence_of
from evolve.episode.skill_runtime.shown_skills import NO_TEXT, skills_for, text_kinds, texts
from evolve.errors import EnvironmentFailure
from evolve.protocols import Environment, HasFirstScene
from evolve.usercode import ask
from memory.evidence import Evidence
from memory.protocols import KnowledgeView
from memory.records import Injection, Recalled, RecallQuery, Record, Task
from memory.store import Store
from playbooks.contradictions import outdone
from playbooks.core import Core, choose
from playbooks.kinds.exemplar import Exemplar
from playbooks.token_budget import cost, shared
from playbooks.view import RecordView
from policies.protocols import Policy
from skills.record import Skill

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shown:
    """What one episode is shown. `injected` names the records of `core`, `recalled`, `skills` and `exemplars`, in that
    order."""

    core: tuple[Record[Any], ...] = ()
    recalled: tuple[Record[Any], ...] = ()
    injected: tuple[Injection, ...] = ()
    skills: tuple[Record[Any], ...] = ()
    """Callees first."""
    exemplars: tuple[Record[Any], ...] = ()
    """The most similar one last."""

    @property
    def records(self) -> tuple[Record[Any], ...]:
        """Return all of them."""
        return (*self.core, *self.recalled, *self.skills, *self.exemplars)


def choose_core(config: Config, view: KnowledgeView, policy: Policy, tasks_done: int) -> Core:
    """Return the core as of now, within its half of the knowledge budget."""
    budget = config.playbook.token_budget
    known = RecordView(texts(view), view.namespace, view.version)
    return choose(known, budget, policy.count_tokens, profile=policy.profile, tasks_done=tasks_done)


@dataclass(frozen=True)
class Sought:
    """A task, and the text by which rules, notes and exemplars are recalled for it."""

    task: Task
    text: str


def sought(task: Task, environment: Environment | None = None) -> Sought:
    """Return a task with its instruction, and with its first scene where its world knows that (`HasFirstScene`).

    Where the world fails at it, the instruction is left: the episode will meet that failure, and say so. Raises
    `UserCodeError` for a bug of the environment.
    """
    scene = ""
    if isinstance(environment, HasFirstScene):
        try:
            scene = ask(environment, "first_scene", str, task).strip()
        except EnvironmentFailure as failure:
            _log.warning("knowledge for task %s is recalled by its instruction alone: %s", task.id, failure)
    return Sought(task, task.opened(scene).instruction)


@watched("recall")
def recall_for(
    store: Store,
    config: Config,
    wanted: Sought,
    core: Sequence[Record[Any]],
    policy: Policy,
    *,
    snapshot_id: str | None = None,
) -> Shown:
    """Return what is shown for a task: live, or frozen at a snapshot. Skills are chosen by its instruction alone.

    Frozen recall searches exactly and leaves out what was learned from the task itself.
    """
    left = max(config.playbook.token_budget - cost(core, policy.profile, policy.count_tokens), 0)
    found = _texts(store, config, wanted, left, core, snapshot_id)
    near = nearest(store, config, wanted.task.id, wanted.text, policy, snapshot_id=snapshot_id)
    found, near = shared(left, found, near) if near else (found, near)
    hidden = _outdone(store, config, (*core, *(item.record for item in found)), snapshot_id)
    core = [record for record in core if record.id not in hidden]
    found = tuple(item for item in found if item.record.id not in hidden)
    skills = skills_for(store, config, wanted.task, policy, snapshot_id=snapshot_id)
    ways: dict[str, dict[str, float]] = {each.record.id: {each.way: each.score} for each in skills.chosen}
    return Shown(
        core=tuple(core),
        recalled=tuple(item.record for item in found),
        injected=(
            *(injection_of(record, rank, core=True) for rank, record in enumerate(core)),
            *(injection_of(item.record, item.rank, item.scores) for item in found),
            *(injection_of(record, rank, ways.get(record.id)) for rank, record in enumerate(skills.records)),
            *(injection_of(item.record, item.rank, item.scores) for item in near[::-1]),
        ),
        skills=skills.records,
        exemplars=tuple(item.record for item in near[::-1]),
    )


def _texts(
    store: Store, config: Config, wanted: Sought, left: int, core: Sequence[Record[Any]], snapshot_id: str | None
) -> tuple[Recalled, ...]:
    """Return the rules and notes that a task recalls within `left` tokens, beside those of the core."""
    kinds = text_kinds(config)
    if not (left and kinds and config.memory.recall_k):
        return ()
    return store.recall(
        RecallQuery(
            text=wanted.text,
            namespace=config.memory.namespace,
            kinds=kinds,
            k=config.memory.recall_k,
            token_budget=left,
            exclude_ids=tuple(record.id for record in core),
            exclude_task_ids=(wanted.task.id,) if snapshot_id else (),
            snapshot_id=snapshot_id,
        )
    )


def _outdone(store: Store, config: Config, records: Sequence[Record[Any]], snapshot_id: str | None) -> frozenset[str]:
    """Return the ids of those that a contradicting one outdoes by the evidence, as of the snapshot if given."""

    def known(rivals: Sequence[Record[Any]]) -> Mapping[str, Evidence]:
        until = store.get_snapshot(snapshot_id).position if snapshot_id else None
        return evidence_of(store, config.forget, rivals, until=until)

    return outdone(records, known)


def shown_again(store: Store, injected: Sequence[Injection]) -> Shown:
    """Return what a journalled injection list shows from the start, each record in the version that it names.

    For an episode that is run (again) after it was logged. A record that was forgotten is left out, and so is one that
    the agent searched for later.
    """
    found = {record.id: record for record in store.reader.load([item.record_id for item in injected])}
    known = ((item, found[item.record_id]) for item in injected if item.record_id in found and not item.searched)
    records = [(item, _version(store, record, item.version)) for item, record in known]
    rest = [record for item, record in records if not item.core]
    return Shown(
        core=tuple(record for item, record in records if item.core),
        recalled=tuple(record for record in rest if record.kind not in NO_TEXT),
        injected=tuple(injected),
        skills=tuple(record for record in rest if record.kind == Skill.kind),
        exemplars=tuple(record for record in rest if record.kind == Exemplar.kind),
    )


def _version(store: Store, record: Record[Any], version: int) -> Record[Any]:
    if record.version == version:
        return record
    return next((each for each in store.reader.versions(record.id) if each.version == version), record)


def injection_of(
    record: Record[Any],
    rank: int,
    scores: Mapping[str, float] | None = None,
    *,
    core: bool = False,
    searched: bool = False,
) -> Injection:
    """Return a record as a journalled injection list names it."""
    return Injection(
        record_id=record.id,
        version=record.version,
        label=record.label,
        rank=rank,
        scores=dict(scores or {}),
        core=core,
        searched=searched,
    )
