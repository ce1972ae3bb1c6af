"""Gate `replay`: the episode that a skill was made from, done again with the skill, must still succeed and use it.

That of Agent Skill Induction (arXiv 2504.06821): the trajectory is rewritten with the new function and kept if the
evaluator still says yes and the function was used. The rewriting is a test of the skill that names its task. No model
is asked. It says that a skill works where it was made, and nothing about other tasks: that is for `held_out`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evolve.episode.skill_runtime.prelude import start
from evolve.errors import EnvironmentFailure
from evolve.gates.context import GateContext
from evolve.gates.coverage import Trials
from evolve.gates.decisions import Round, verdict_of
from evolve.protocols import Action, Environment
from evolve.seeds import seed_for
from evolve.statistics.decision import Decision
from memory.errors import BadInput, NotFound
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Record, Status, Step, Task, Trajectory, Verdict
from skills.library import Library, Overlay
from skills.record import Skill
from skills.usage import uses


class Run(Frozen):
    """One test that was run in the world of its task."""

    task_id: str
    error: str | None = None
    """Why it did not come to an end."""
    passed: bool = False
    used: bool = False
    """The skill was called as it is, and returned."""


class ReplayTrial(Frozen):
    """What was observed of one skill."""

    runs: tuple[Run, ...] = ()
    refused: str = ""
    """Why it could not be run at all."""


def decide(trial: ReplayTrial) -> Decision:
    """Accept iff the skill was run, and every run came to an end, passed and used it."""
    failed = next((run for run in trial.runs if run.error or not (run.passed and run.used)), None)
    reason = trial.refused
    if failed is not None:
        what = failed.error or ("the task fails" if not failed.passed else "the skill is not used")
        reason = f"replay of {failed.task_id!r}: {what}"
    elif not trial.runs and not reason:
        reason = "no test replays a task that it was made from"
    return Decision(
        accepted=not reason,
        reason=reason or f"replayed in {len(trial.runs)} tasks",
        status=Status.REJECTED if reason else Status.PROVISIONAL,
        evidence={"trial": trial.model_dump(mode="json"), "rules": {}, "statistics": {"replayed": len(trial.runs)}},
    )


def replay(evidence: Mapping[str, Any]) -> Decision:
    """Decide again from what a decision recorded."""
    return decide(ReplayTrial.model_validate(evidence["trial"]))


class Replay:
    """Runs the tests of proposed skills that name a task they were made from. Ops of other kinds pass."""

    name = "replay"

    def __init__(self, environment: Environment, seed: int, trials: Trials | None = None) -> None:
        self._environment, self._seed = environment, seed
        self._trials = trials or Trials()

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict on each skill, in order: one may require those accepted before it."""
        library = Library(view.records(Skill.kind)).overlay()
        tasks = {trajectory.task.id: trajectory.task for trajectory in trajectories}
        rounds: list[Round] = []
        for op in ops:
            if op.kind == Skill.kind and op.payload is not None:
                trial_of = library.overlay()
                trial = await self.trial(Skill.model_validate(op.payload), trial_of, tasks)
                rounds.append(Round((op.op_id,), decide(trial)))
                library = trial_of if rounds[-1].decision.accepted else library
        return verdict_of(self.name, ops, rounds, {})

    async def trial(self, skill: Skill, library: Overlay, tasks: Mapping[str, Task]) -> ReplayTrial:
        """Put a skill into the library and return what its tests in the worlds of `tasks` came to."""
        try:
            _ = library.update(skill) if skill.name in library.names else library.save(skill)
        except (BadInput, NotFound) as unfit:
            return ReplayTrial(refused=str(unfit))
        closure = library.closure([skill.name])
        tests = [test for test in skill.tests if test.task_id in tasks]
        return ReplayTrial(runs=tuple([await self._run(closure, test.code, tasks[test.task_id]) for test in tests]))

    async def _run(self, closure: Sequence[Record[Skill]], code: str, task: Task) -> Run:
        """Run a program in a fresh episode in which the last of `closure` and all it requires are defined."""
        try:
            return await self._ran(closure, code, task)
        except EnvironmentFailure as failure:
            return Run(task_id=task.id, error=f"{type(failure).__name__}: {failure}")

    async def _ran(self, closure: Sequence[Record[Skill]], code: str, task: Task) -> Run:
        world_seed = seed_for(self._seed, self.name, task.id)
        started = await start(self._environment, task, world_seed, closure)
        try:
            if started.error is not None:
                return Run(task_id=task.id, error=started.error)
            result = await started.episode.step(Action(text=code))
            step = Step(index=0, action=code, observation=result.observation, error=result.error)
            outcome = await started.episode.grade()
        finally:
            await started.episode.close()
        episode = Trajectory(task=task, steps=(step,), outcome=outcome, prelude=started.source)
        self._trials.take(closure[-1].payload, episode, world_seed)
        used = any(use.ok and use.record_id == closure[-1].id for use in uses(episode, closure))
        return Run(task_id=task.id, error=result.error, passed=episode.success, used=used)


def make(context: GateContext) -> Replay:
    """Return the gate. Raises as `GateContext.bench_of`."""
    evaluator = context.bench_of(Replay.name).evaluator
    return Replay(evaluator.environment, context.config.run.seed, evaluator.trials)


MEMBER = make
