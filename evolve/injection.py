"""Chooses what an episode is shown: the core, then what was recalled for its task, under one token budget.

Of two that contradict each other, one that was refuted is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.config import Config
from evolve.worth import evidence_of
from memory.evidence import Evidence
from memory.protocols import KnowledgeView
from memory.records import Injection, Recalled, RecallQuery, Record, Task
from memory.store import Store
from playbooks.budget import cost
from playbooks.contradictions import outdone
from playbooks.core import Core, choose
from policies.protocols import Policy


@dataclass(frozen=True)
class Shown:
    """What one episode is shown. `injected` names the records of `core` and `recalled`, in that order."""

    core: tuple[Record[Any], ...] = ()
    recalled: tuple[Record[Any], ...] = ()
    injected: tuple[Injection, ...] = ()


def choose_core(config: Config, view: KnowledgeView, policy: Policy, tasks_done: int) -> Core:
    """Return the core as of now, within its half of the knowledge budget."""
    budget = config.playbook.token_budget
    return choose(view, budget, policy.count_tokens, profile=policy.profile, tasks_done=tasks_done)


def recall_for(
    store: Store,
    config: Config,
    task: Task,
    core: Sequence[Record[Any]],
    policy: Policy,
    *,
    snapshot_id: str | None = None,
) -> Shown:
    """Return what is shown for a task: live, or frozen at a snapshot.

    Frozen recall searches exactly and leaves out what was learned from the task itself.
    """
    left = max(config.playbook.token_budget - cost(core, policy.profile, policy.count_tokens), 0)
    found: tuple[Recalled, ...] = ()
    if left and config.memory.recall_k:
        query = RecallQuery(
            text=task.instruction,
            namespace=config.memory.namespace,
            kinds=config.memory.kinds,
            k=config.memory.recall_k,
            min_score=config.memory.min_score,
            token_budget=left,
            exclude_task_ids=(task.id,) if snapshot_id else (),
            snapshot_id=snapshot_id,
            mmr_lambda=config.memory.mmr_lambda,
        )
        ids = {record.id for record in core}
        found = tuple(item for item in store.recall(query) if item.record.id not in ids)
    hidden = _outdone(store, config, (*core, *(item.record for item in found)), snapshot_id)
    core = [record for record in core if record.id not in hidden]
    found = tuple(item for item in found if item.record.id not in hidden)
    return Shown(
        core=tuple(core),
        recalled=tuple(item.record for item in found),
        injected=(
            *(_injection(record, rank, {}, core=True) for rank, record in enumerate(core)),
            *(_injection(item.record, item.rank, item.scores) for item in found),
        ),
    )


def _outdone(store: Store, config: Config, records: Sequence[Record[Any]], snapshot_id: str | None) -> frozenset[str]:
    """Return the ids of those that a contradicting one outdoes by the evidence, as of the snapshot if given."""

    def known(rivals: Sequence[Record[Any]]) -> Mapping[str, Evidence]:
        until = store.get_snapshot(snapshot_id).position if snapshot_id else None
        return evidence_of(store, config.forget, rivals, until=until)

    return outdone(records, known)


def shown_again(store: Store, injected: Sequence[Injection]) -> Shown:
    """Return what a journalled injection list shows, for an episode that is run (again) after it was logged."""
    found = {record.id: record for record in store.reader.load([item.record_id for item in injected])}
    records = [(item, found.get(item.record_id)) for item in injected]
    return Shown(
        core=tuple(record for item, record in records if record is not None and item.core),
        recalled=tuple(record for item, record in records if record is not None and not item.core),
        injected=tuple(injected),
    )


def _injection(record: Record[Any], rank: int, scores: dict[str, float], *, core: bool = False) -> Injection:
    return Injection(
        record_id=record.id, version=record.version, label=record.label, rank=rank, scores=scores, core=core
    )
