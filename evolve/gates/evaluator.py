"""Runs tasks for the gates: under the knowledge in force, or as proposed ops would make it. The journal's stays as is.

Episodes of gates are journalled under `<run id>/gates` with an arm of their own: they are never the stream's, never
credited and never reflected on. An episode is known by what decides it: policy and its version, how it acts,
environment, task, the words of the knowledge in its prompt, and the seed of the look. One that is known is not run
again, so a resumed run repeats none, and a task that is shown the same with and without the ops runs once.

Where nothing depends on a seed (the policy is greedy, `policy.temperature = 0`, and the environment says `seedless`),
the seed is left out of the key: looks share their episodes, A/A is the base itself, and an episode of the run's stream
that was shown the same words is taken as it is. A policy that samples, or a world that does, never shares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from evolve.config.model import Config
from evolve.episode.arms import FURTHER
from evolve.episode.injection import Shown, choose_core, recall_for, shown_again, sought
from evolve.episode.journalled_replies import about
from evolve.episode.metrics import passed
from evolve.episode.prompting import knowledge
from evolve.episode.rollout import Attempt, RolloutConfig, rollout
from evolve.gates.call_budget import CallBudget
from evolve.gates.coverage import Trials, skill_ops
from evolve.parallel import all_of
from evolve.protocols import Environment
from evolve.seeds import id_for, seed_for
from evolve.statistics.partial_progress import Marks, reach
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Task, Trajectory
from memory.scratch import scratch
from memory.store import Store
from playbooks.core import core_records
from playbooks.kinds.exemplar import shown_text
from policies.protocols import Policy
from skills.record import Skill

ARM = "gate"
_AT_ONCE = 8
"""Most episodes started before the calls left are looked at again. Not `run.concurrency`: that decides nothing."""


_BESIDE = "/gates"


def episodes_of(run_id: str) -> str:
    """Return the run id under which the episodes of a run's gates are journalled."""
    return run_id + _BESIDE


def run_of(run_id: str) -> str:
    """Return the run that an episode belongs to, whether the stream did it or a gate."""
    return run_id.removesuffix(_BESIDE)


@dataclass(frozen=True)
class _Planned:
    """An episode that a gate wants."""

    id: str
    task: Task
    said: str
    shown: Shown
    seed: int


@dataclass(frozen=True)
class Evaluator:
    """The `Evaluate` of `evolve.statistics.decision`, over a workspace and an environment."""

    config: Config
    store: Store
    environment: Environment
    policy: Policy
    acting: RolloutConfig
    run_id: str
    purse: CallBudget = field(default_factory=lambda: CallBudget(float("inf")))
    trials: Trials = field(default_factory=Trials)

    @property
    def seedless(self) -> bool:
        """Tell whether no episode depends on its seed."""
        return self.acting.temperature == 0 and bool(getattr(self.environment, "seedless", False))

    async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        """Return task id -> passed, None where an episode was not graded, how far each came, and what was written.

        Raises what `rollout` raises, and `OutOfCalls` before an arm that cannot be afforded (for the base: it and the
        candidate beside it). Shown is what live recall finds, with the core that would be chosen now. Tasks that the
        knowledge came from are shown it too: the gate decides which tasks to ask about.
        """
        planned = self._planned(ops or (), tasks, seed)
        found = self._stored(planned)
        unpaid = [each for each in planned if self._costs(each, found.get(each.id))]
        most = self.acting.max_steps
        self.purse.ask(len(unpaid), most, times=1 if ops else 2)
        limit = asyncio.Semaphore(self.config.run.concurrency)
        while unpaid:
            count = self.purse.reserve(_AT_ONCE, most)
            some, unpaid = unpaid[:count], unpaid[count:]
            new = await all_of(self._run(each, limit) for each in some if each.id not in found)
            found |= {episode.id: episode for episode in new}
            for each in some:
                self.purse.pay(found[each.id])
        episodes = [found[each.id] for each in planned]
        self._keep(ops or (), episodes)
        far = {episode.task.id: far for episode in episodes if (far := reach(episode)) is not None}
        tokens = {episode.task.id: episode.usage.completion_tokens for episode in episodes}
        thrift = bool(ops) and all(op.kind == Skill.kind for op in ops or ())
        return Marks(passed(tasks, episodes), far, tokens=tokens, thrift=thrift)

    def _keep(self, ops: Sequence[DeltaOp], episodes: Sequence[Trajectory]) -> None:
        """Keep the episodes in which a proposed skill was called: they say which of its code was tried."""
        for skill in (Skill.model_validate(op.payload) for op in skill_ops(ops)):
            for episode in episodes:
                self.trials.take(skill, episode, seed_for(episode.seed, "world"))

    def differ(self, before: Sequence[DeltaOp], ops: Sequence[DeltaOp], tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks that are shown something else with `ops` on top of `before`; all where a seed matters.

        Where none does, every other task ends the same with and without them, and there is nothing to run.
        """
        if not self.seedless:
            return list(tasks)
        arms = (self._planned(before, tasks, 0), self._planned([*before, *ops], tasks, 0))
        return [base.task for base, candidate in zip(*arms, strict=True) if base.id != candidate.id]

    def _planned(self, ops: Sequence[DeltaOp], tasks: Sequence[Task], seed: int) -> list[_Planned]:
        shown = self._shown(ops, tasks)
        # of this run alone: between runs a world and its grader can have changed, and nothing here says so
        whose = (self.run_id, self.policy.name, self.policy.version, repr(self.acting), self.environment.name)
        key = "any" if self.seedless else seed
        plans: list[_Planned] = []
        for task in tasks:
            said = self._said(shown[task.id])
            episode_id = id_for("ga", *whose, task.model_dump_json(), said, key)
            plans.append(_Planned(episode_id, task, said, shown[task.id], seed_for(key, task.id)))
        return plans

    def _shown(self, ops: Sequence[DeltaOp], tasks: Sequence[Task]) -> dict[str, Shown]:
        config, namespace = self.config, self.config.memory.namespace
        if not config.playbook.enabled:
            return {task.id: Shown() for task in tasks}
        with scratch(self.store) as copy:
            if ops:
                copy.commit(namespace, ops, actor=ARM)
            view: KnowledgeView = copy.view(namespace)
            core = core_records(choose_core(config, view, self.policy, 0), view)
            wanted = [sought(task, self.environment) for task in tasks]
            return {each.task.id: recall_for(copy, config, each, core, self.policy) for each in wanted}

    def _stored(self, planned: Sequence[_Planned]) -> dict[str, Trajectory]:
        """Return the episodes that were run before, by a gate or, where no seed matters, by the stream of this run."""
        found = {episode.id: episode for episode in self.store.trajectories(ids=[each.id for each in planned])}
        missing = [each for each in planned if each.id not in found] if self.seedless else []
        if missing:
            streamed = self.store.trajectories(run_id=self.run_id, task_id=[each.task.id for each in missing])
            for each in missing:
                if same := next((episode for episode in streamed if self._same(episode, each)), None):
                    found[each.id] = same.model_copy(update={"id": each.id})
        return found

    def _same(self, episode: Trajectory, planned: _Planned) -> bool:
        same = (episode.policy, episode.policy_version) == (self.policy.name, self.policy.version)
        same = same and episode.arm not in FURTHER  # which were sampled
        return same and episode.task == planned.task and self._said_to(episode) == planned.said

    def _said_to(self, episode: Trajectory) -> str | None:
        shown = shown_again(self.store, episode.injected)
        found = {(record.id, record.version) for record in shown.records}
        if found != {(item.record_id, item.version) for item in episode.injected}:
            return None  # a record was forgotten: what was said then cannot be told any more
        return self._said(shown)

    def _said(self, shown: Shown) -> str:
        """Return all that an episode knows: the words of its prompt, the code of its skills, and its exemplars."""
        more = [record.payload.source for record in shown.skills]
        more += [shown_text(shown.exemplars)] if shown.exemplars else []
        return "\n".join([knowledge(shown.core, shown.recalled, self.policy.profile), *more])

    def _costs(self, planned: _Planned, stored: Trajectory | None) -> bool:
        """Tell whether an episode is still to be paid for: not one of the stream."""
        if stored is not None and stored.run_id != episodes_of(self.run_id):
            return False
        return not self.purse.knows(planned.id)

    async def _run(self, planned: _Planned, limit: asyncio.Semaphore) -> Trajectory:
        attempt = Attempt(
            id=planned.id,
            task=planned.task,
            seed=planned.seed,
            core=planned.shown.core,
            recalled=planned.shown.recalled,
            injected=planned.shown.injected,
            skills=planned.shown.skills,
            exemplars=planned.shown.exemplars,
            run_id=episodes_of(self.run_id),
            arm=ARM,
        )
        async with limit:
            with about(planned.task.id):
                trajectory = await rollout(self.environment, self.policy, attempt, self.acting)
        self.store.add_trajectory(trajectory)
        return trajectory
