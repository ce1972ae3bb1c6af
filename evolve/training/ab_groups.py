"""Matched groups: a part of a group is shown what is known, as large a part the same with a quarantined text on top.

Both train the policy, each compared within itself, since their prompts differ. The difference of their success rates is
what the text is worth (marginal utility, SAPO, arXiv 2606.08755), and the evidence that `training.admission` decides
by. SAPO compares with the very rollouts that a text was induced from; here rollouts are fresh, and no task counts of a
scenario that the text was written from. Nor does one that recall does not show the text in, or a second time: where a
policy moves, a task's first group is the one that nothing was trained on. All of it stands in the training's folder.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic import Field

from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.episode.injection import Shown, Sought, choose_core, recall_for, shown_again, sought
from evolve.gates.quarantine import restoring
from evolve.loop.assembly import make_gates
from evolve.protocols import Environment
from evolve.training import ledger
from evolve.training.ledger import MATCHED
from evolve.training.rollouts import ChainSpec, Recall, Rollout
from memory.records import Frozen, Injection, Record, Status, Task, Trajectory
from memory.scratch import scratch
from memory.store import Store
from playbooks.core import core_records
from policies.protocols import Policy
from skills.record import Skill

CANDIDATES = "candidates.json"
GATE = "matched"
"""What decisions from matched groups are journalled as."""


class Candidate(Frozen):
    """A quarantined text, and where it would be shown."""

    record_id: str
    version: int
    refused: str = ""
    """Why the gate `static` would not have it shown to anybody."""
    shown: dict[str, tuple[Injection, ...]] = Field(default_factory=dict)
    """Task -> all that an agent is shown there with it, for the tasks that may speak for it."""


class Matched(Frozen):
    """What both parts of a group came to in one task; the k-th runs of both had the same seed. None = not graded."""

    iteration: int
    record_id: str
    task: str
    without: tuple[bool | None, ...]
    with_candidate: tuple[bool | None, ...]


@dataclass(frozen=True)
class Matching:
    """Splits groups of a training, and keeps what they came to."""

    candidates: tuple[Candidate, ...]
    store: Store
    folder: Path

    def split(self, settings: Iterable[ChainSpec], rollouts: int) -> Iterator[ChainSpec]:
        """Yield the settings of an iteration; a chain that can tell something new about a text comes twice, in halves.

        One text a chain, the first that can be told about; where members are odd, one more is shown what is known.
        """
        told = {(each.record_id, each.task) for each in matched(self.folder)}
        for setting in settings:
            members = setting.rollouts or rollouts
            found = self._new(setting, told) if members > 1 else None
            if found is None:
                yield setting
                continue
            told |= {(found.record_id, task.id) for task in setting.chain.tasks}
            half, recall = members // 2, partial(self._recall, found, setting.recall)
            yield replace(setting, rollouts=members - half)
            yield replace(setting, rollouts=half, candidate=found.record_id, recall=recall)

    def note(self, iteration: int, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Keep what the matched groups of an iteration came to; return how many there were and the mean difference."""
        found = list(self._matched(iteration, rollouts))
        for each in found:
            ledger.append(self.folder / MATCHED, each.model_dump(mode="json"))
        if not found:
            return {"matched": 0.0}
        gains = [mean(map(bool, each.with_candidate)) - mean(map(bool, each.without)) for each in found]
        return {"matched": float(len(found)), "candidate_gain": mean(gains)}

    def _new(self, setting: ChainSpec, told: Container[tuple[str, str]]) -> Candidate | None:
        tasks = [task.id for task in setting.chain.tasks]
        new = (c for c in self.candidates if any(t in c.shown and (c.record_id, t) not in told for t in tasks))
        return next(new, None)

    def _matched(self, iteration: int, rollouts: Sequence[Rollout]) -> Iterator[Matched]:
        base = {(each.chain_id, each.member): each for each in rollouts if not each.candidate}
        groups = dict.fromkeys((each.chain_id, each.candidate) for each in rollouts if each.candidate)
        shown = {each.record_id: each.shown for each in self.candidates}
        for chain_id, record_id in groups:
            own = [each for each in rollouts if (each.chain_id, each.candidate) == (chain_id, record_id)]
            for position, link in enumerate(own[0].links):
                if (task := link.trajectory.task.id) in shown[record_id]:
                    yield Matched(
                        iteration=iteration,
                        record_id=record_id,
                        task=task,
                        without=tuple(_passed(base[chain_id, each.member], position) for each in own),
                        with_candidate=tuple(_passed(each, position) for each in own),
                    )

    def _recall(self, candidate: Candidate, known: Recall, task: Task) -> Shown:
        injected = candidate.shown.get(task.id)
        return shown_again(self.store, injected) if injected else known(task)


def _passed(rollout: Rollout, position: int) -> bool | None:
    trajectory = rollout.links[position].trajectory
    return None if trajectory.outcome is None else trajectory.success


def matched(folder: Path) -> list[Matched]:
    """Return what the matched groups of a training came to, in order."""
    return [Matched.model_validate(line) for line in ledger.lines(folder / MATCHED)]


async def matching_of(
    config: Config, store: Store, policy: Policy, environment: Environment, folder: Path, address: str
) -> Matching:
    """Return what splits the groups of a training; its texts are those quarantined when it began, the oldest first.

    `address` names the knowledge that it began with.
    """
    kept = folder / CANDIDATES
    if not kept.exists():
        found = await _found(config, store, policy, environment, address)
        ledger.write(kept, json.dumps([each.model_dump(mode="json") for each in found]))
    candidates = tuple(Candidate.model_validate(each) for each in json.loads(kept.read_text()))
    return Matching(candidates, store, folder)


async def _found(
    config: Config, store: Store, policy: Policy, environment: Environment, address: str
) -> list[Candidate]:
    """Try each text on a copy of the knowledge: an agent is then shown what it would be, were the text admitted."""
    namespace = config.memory.namespace
    held = [each for each in store.records(namespace) if each.status is Status.CANDIDATE and each.kind != Skill.kind]
    static, *_ = make_gates(config.model_copy(update={"gate": config.gate.model_copy(update={"names": ("static",)})}))
    tasks = [sought(task, environment) for task in load_tasks(config, environment, config.run.split)]
    found: list[Candidate] = []
    with scratch(store) as copy:
        for record in held[: config.train.candidates]:
            copy.rollback(namespace, address, actor=GATE)
            op = restoring(record, record.id)
            origins = _origins(store, record)
            refused = (await static.judge([op], copy.view(namespace), origins)).rejected.get(op.op_id, "")
            candidate = Candidate(record_id=record.id, version=record.version, refused=refused)
            if not refused:
                copy.commit(namespace, [op], actor=GATE)
                own = {_scenario(episode.task) for episode in origins}
                told = record.provenance.task_ids
                fresh = [t for t in tasks if _scenario(t.task) not in own and t.task.id not in told]
                shown = _shown(config, copy, policy, fresh, record)
                candidate = candidate.model_copy(update={"shown": shown})
            found.append(candidate)
    return found


def _shown(
    config: Config, copy: Store, policy: Policy, tasks: Sequence[Sought], record: Record[Any]
) -> dict[str, tuple[Injection, ...]]:
    """Return what is shown for each task that a record is shown for; of the record the version that was quarantined."""
    snapshot = copy.snapshot(config.memory.namespace)
    address = f"{snapshot.id}@{snapshot.position}"
    view = copy.view(config.memory.namespace, address)
    core = core_records(choose_core(config, view, policy, 0), view)
    every = {each.task.id: recall_for(copy, config, each, core, policy, snapshot_id=address).injected for each in tasks}
    quarantined = {"version": record.version}
    return {
        task: tuple(i.model_copy(update=quarantined) if i.record_id == record.id else i for i in shown)
        for task, shown in every.items()
        if record.id in {injection.record_id for injection in shown}
    }


def _origins(store: Store, record: Record[Any]) -> list[Trajectory]:
    """Return the episodes that a text was written from."""
    found = map(store.trajectory, record.provenance.trajectory_ids)
    return [episode for episode in found if episode is not None]


def _scenario(task: Task) -> str:
    return task.scenario or task.id
