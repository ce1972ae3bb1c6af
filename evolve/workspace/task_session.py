"""One task of an agent of one's own: what is known for it, what was done, and what was learned from it.

    with memory.task("Book room 4") as task:
        task.finish(agent(task.instruction, task.knowledge), success=True)

All tasks of an open workspace are one session, a run in its journal, and go through the nodes of `evolve.Agent`: no
skills and no exemplars are shown, whatever the settings of the workspace's runs. Where no model is configured,
reflector `rules` and curator `direct` learn: they ask none, and read errors that were told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar

from evolve.config.file import changed
from evolve.config.model import Config
from evolve.gates.gate_events import PROPOSAL
from evolve.gates.review_queue import Standing, standing
from evolve.integrations.agent import Agent, Asked, hosted, without_conversation
from evolve.loop.session import Parts
from memory.errors import BadInput
from memory.records import Check, DeltaOp, Frozen, Op, Outcome, Reflection, Step, StopReason, Task, Trajectory
from memory.store import Store

T = TypeVar("T")
Wait = Callable[[Coroutine[Any, Any, Any]], Any]

WITHOUT_MODEL = {"playbook.reflector": "rules", "playbook.curator": "direct"}
BLIND = (
    "reflector 'rules' asks no model and found no rule: it reads errors of steps (task.step(action, error=...)), what "
    "overcame them, and the feedback of failed tasks; name a model in [policy] to learn from all that was done"
)


class Finished(Frozen):
    """What came of a task."""

    run_id: str
    """The session that it belongs to."""
    episode: str
    """Id under which it is stored."""
    success: bool | None
    """None: nobody said."""
    changes: tuple[Standing, ...]
    """What became of each lesson."""
    note: str
    """The same in a sentence; of a task that taught nothing, why."""


def configured(config: Config, parts: Parts) -> Config:
    """Return the configuration under which tasks are learned from: without a model where none was named."""
    config = without_conversation(config)
    says = {"reflector", "curator"} & config.playbook.model_fields_set
    if "policy" in config.model_fields_set or parts.policy is not None or says or config.preset:
        return config
    return changed(config, WITHOUT_MODEL)


class TaskLoop:
    """Recalls for tasks and learns from them, through one `Agent` that is opened with the first of them."""

    def __init__(self, store: Store, config: Config, parts: Parts) -> None:
        self._config, self._parts, self._store = configured(config, parts), parts, store
        self._agent: Agent | None = None
        self._opening = asyncio.Lock()
        self.note = ""
        """What the latest task came to."""

    async def ask(self, task: Task | str, *, learning: bool) -> Asked:
        """Return what is known for a task."""
        async with self._opening:
            if self._agent is None:
                agent = hosted(self._config, store=self._store, parts=self._parts)
                self._agent = await agent.__aenter__()
        return await self._agent.ask(task, learning=learning)

    async def learn(self, asked: Asked, given: Trajectory) -> Finished:
        """Store what became of a task, learn from it, and say what was learned."""
        if self._agent is None:
            raise BadInput("got a task that was asked for in another session; ask for it again")
        stored = await self._agent.learn(asked, given)
        changes = _changes(self._store, asked)
        made = [each for each in self._store.reflections(stored.run_id) if each.trajectory_id == stored.id]
        note = _note(self._config, asked, stored, changes, made)
        self.note = note
        success = None if stored.outcome is None else stored.outcome.success
        return Finished(run_id=stored.run_id, episode=stored.id, success=success, changes=changes, note=note)

    async def close(self, error: BaseException | None = None) -> None:
        """End the session; nothing where no task was asked for."""
        agent, self._agent = self._agent, None
        if agent is not None:
            await agent.__aexit__(type(error) if error else None, error, None)


class TaskRecord:
    """What a task shows and is told, sync or async."""

    def __init__(self, loop: TaskLoop, task: Task | str, learning: bool) -> None:
        self._loop, self._task, self._learning = loop, task, learning
        self._asked: Asked | None = None
        self._steps: list[Step] = []
        self._finished: Finished | None = None
        self._told = False
        """Whether its end was told, also where learning from it failed then."""

    @property
    def instruction(self) -> str:
        """What is to be done."""
        return self._known.task.instruction

    @property
    def knowledge(self) -> str:
        """What is known for it: text for a prompt, may be empty."""
        return self._known.knowledge

    @property
    def shown(self) -> tuple[str, ...]:
        """Labels of the records that `knowledge` holds."""
        return tuple(each.label for each in self._known.shown.injected)

    @property
    def finished(self) -> Finished | None:
        """What came of it; None before it is finished."""
        return self._finished

    def step(self, action: object, observation: object = "", *, error: object = None) -> None:
        """Tell one action of the agent, what came back, and the error where it failed; what is no text is shown as one.

        An exception is told with its name.
        """
        wrong = None if error is None else _said(error)
        back = "" if observation is None else _said(observation)
        self._steps.append(
            Step(index=len(self._steps), action=_said(action), observation=back or wrong or "", error=wrong)
        )

    @property
    def _known(self) -> Asked:
        if self._asked is None:
            raise BadInput("the task has not begun; write `with memory.task(...) as task:` (async: `async with`)")
        return self._asked

    async def _begin(self) -> None:
        self._asked = await self._loop.ask(self._task, learning=self._learning)

    async def _end(self, given: Trajectory) -> Finished:
        self._told = True
        self._finished = await self._loop.learn(self._known, given)
        return self._finished

    def _made(self, output: object, success: bool | None, reward: float | None, feedback: str) -> Trajectory:
        """Return the episode. Raises `BadInput` for a task that was finished before, and what does not go together."""
        if self._finished is not None:
            raise BadInput(f"task {self.instruction!r} was finished before; begin another one")
        if success not in (None, True, False):
            raise BadInput(f"got success {success!r}; expected True, False, or None where nobody knows")
        if reward is not None and not 0 <= reward <= 1:
            raise BadInput(f"got reward {reward!r}; expected one from 0 to 1: divide by the highest that there is")
        if success is None and (reward is not None or feedback):
            raise BadInput("got a reward or feedback without success; say success=True or success=False as well")
        if output is not None and str(output):
            self.step(str(output))
        outcome = None
        if success is not None:
            checks = (Check(name="feedback", passed=success, detail=feedback),) if feedback else ()
            outcome = Outcome(success=success, reward=float(success) if reward is None else reward, checks=checks)
        return Trajectory(task=self._known.task, steps=tuple(self._steps), outcome=outcome)

    def _broken(self, error: BaseException) -> Trajectory:
        """Return the episode of a task that ended with an exception: it is not graded."""
        said = _said(error)
        return Trajectory(task=self._known.task, steps=tuple(self._steps), stop=StopReason.ERROR, error=said)

    @staticmethod
    def _not_stored(error: Exception, unlearned: Exception) -> None:
        """Add to an exception, which flies on, that nothing could be learned from it."""
        error.add_note(f"evolve could not learn from it: {_said(unlearned)}")

    def _unfinished(self) -> BadInput:
        return BadInput(f"task {self.instruction!r} was not finished; end it with task.finish(output, success=...)")


class OpenTask(TaskRecord):
    """A task under way. Leave its `with` block by `finish`, or by an exception, which is stored as an ungraded end."""

    def __init__(self, loop: TaskLoop, task: Task | str, learning: bool, wait: Wait) -> None:
        super().__init__(loop, task, learning)
        self._wait = wait

    def __enter__(self) -> OpenTask:
        self._wait(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._told:
            return
        if isinstance(error, Exception):
            try:
                self._wait(self._end(self._broken(error)))
            except Exception as unlearned:
                self._not_stored(error, unlearned)
        elif error is None:
            raise self._unfinished()

    def finish(
        self, output: object = "", *, success: bool | None = None, reward: float | None = None, feedback: str = ""
    ) -> Finished:
        """Say what the agent answered and how it went, and learn from it. `output` becomes the last step.

        `success` None: nobody knows; `reward` in [0, 1], else 1 for a success; `feedback`: what was right or wrong.
        """
        return self._wait(self._end(self._made(output, success, reward, feedback)))


class AsyncOpenTask(TaskRecord):
    """`OpenTask` for code in an event loop: `async with`, and `await task.finish(...)`."""

    async def __aenter__(self) -> AsyncOpenTask:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._told:
            return
        if isinstance(error, Exception):
            try:
                await self._end(self._broken(error))
            except Exception as unlearned:
                self._not_stored(error, unlearned)
        elif error is None:
            raise self._unfinished()

    async def finish(
        self, output: object = "", *, success: bool | None = None, reward: float | None = None, feedback: str = ""
    ) -> Finished:
        """Say what the agent answered and how it went, and learn from it, as `OpenTask.finish`."""
        return await self._end(self._made(output, success, reward, feedback))


def _changes(store: Store, asked: Asked) -> tuple[Standing, ...]:
    """Return what became of the changes that a task led to; counters are none."""
    key = asked.context.stream.key(0)
    found = store.events(type=PROPOSAL, subject=key, limit=1)
    ops = [DeltaOp.model_validate(op) for op in found[0].data.get("ops", ())] if found else []
    return tuple(standing(store, op, key) for op in ops if op.op is not Op.TAG)


def _said(told: object) -> str:
    """Return what was told as text; an exception with its name."""
    return f"{type(told).__name__}: {told}".rstrip(": ") if isinstance(told, BaseException) else str(told)


def _note(
    config: Config, asked: Asked, stored: Trajectory, changes: Sequence[Standing], made: Sequence[Reflection]
) -> str:
    """Return what was learned as a sentence, or why nothing was."""
    used = [each.name for each in changes if each.answer == "in use"]
    if used:
        return f"learned {', '.join(used)}"
    if changes:
        names = ", ".join(filter(None, (each.name for each in changes)))
        why = next(filter(None, (each.reason for each in changes)), "in no prompt until a gate or a person admits it")
        return f"nothing is in use yet: {changes[0].answer} {names}".rstrip() + f" ({why})"
    return f"nothing was learned: {_why(config, asked, stored, made)}"


def _why(config: Config, asked: Asked, stored: Trajectory, made: Sequence[Reflection]) -> str:
    reflector = config.playbook.reflector
    if not asked.learning:
        return "the task was asked for with learning=False"
    if not config.playbook.enabled:
        return "playbook.enabled is false"
    if not stored.steps:
        return "no output and no step was told; say what the agent did with task.step(...) or task.finish(output)"
    if not made:
        return f"playbook.reflect_on is {config.playbook.reflect_on!r}, and this task was solved"
    if any(not each.parsed for each in made):
        return f"the reply of reflector {reflector!r} could not be read; let a stronger model reflect"
    if any(each.insights for each in made):
        return "its lessons are known already"
    return BLIND if reflector == "rules" else f"reflector {reflector!r} found no lesson in it"
