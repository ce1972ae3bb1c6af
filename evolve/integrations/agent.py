"""Memory and learning for an agent of one's own: a function `(task, knowledge) -> Trajectory` is all it takes.

    async with Agent(solve, config) as agent:
        trajectories = await agent.run(["Book a room for Ann.", ...])

Each batch is recalled for, solved, reflected on and learned from through the same nodes as `evolve.run`, without the
graph and without an environment. An agent that cannot be called has the two halves: `ask` what is known for a task,
then `learn` from what was made of it; `propose` puts somebody else's lesson before the gates. Not here: checkpoints and
resume, since nothing is known of how `solve` works.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType

from evolve.config.model import Config
from evolve.episode.agreement import AGREEMENT
from evolve.episode.arms import FROZEN, MAIN
from evolve.episode.injection import Shown, shown_again
from evolve.episode.instrumentation import kept, watched
from evolve.episode.journalled_replies import about
from evolve.episode.prompting import knowledge
from evolve.episode.rollout import RolloutConfig
from evolve.errors import ConfigError, EnvironmentFailure
from evolve.gates.review_queue import Standing, standing
from evolve.loop import assembly as app
from evolve.loop import role_policies
from evolve.loop.batch import Stream
from evolve.loop.live import gates_of
from evolve.loop.nodes.commit import commit
from evolve.loop.nodes.curate import curate, submit
from evolve.loop.nodes.expose import expose
from evolve.loop.nodes.gate import gate
from evolve.loop.nodes.judge import judge
from evolve.loop.nodes.recall import recall, recalled
from evolve.loop.nodes.reflect import reflect
from evolve.loop.runs import AGENT, OUTSIDE, keeper
from evolve.loop.session import Outside, Parts
from evolve.loop.sessions import Session, session_record
from evolve.loop.state import RunContext, State
from evolve.parallel import all_of
from evolve.progress import Observer, Observers, Tally
from evolve.protocols import ActionFormat, Episode
from evolve.seeds import id_for
from evolve.telemetry.described import Traced
from evolve.telemetry.start import traced
from evolve.usercode import broke_contract, checked_outcome, users
from memory.errors import BadInput, IndexLocked
from memory.records import DeltaOp, Injection, Task, Trajectory, Trust, new_id
from memory.store import Store
from policies.budget import Budget
from policies.protocols import ToolSpec
from policies.roles import ROLES, Policies
from policies.scripted import ScriptedPolicy

Solve = Callable[[Task, str], Trajectory | Awaitable[Trajectory]]
"""Does a task with what is known (text for a prompt, may be empty) and says what happened."""
CLOSED = "the Agent is not open; use `async with Agent(...) as agent`"
REMEMBERED = 1000
"""Instructions by which the gates tell the words of a template from those of one task."""


@dataclass(frozen=True)
class Asked:
    """A task with what is known for it, from `Agent.ask` until `Agent.learn`."""

    task: Task
    knowledge: str
    """Text for a prompt, may be empty."""
    shown: Shown
    learning: bool
    context: RunContext = field(repr=False)
    state: State = field(repr=False)


def without_conversation(config: Config) -> Config:
    """Return a configuration without what needs a conversation that the loop holds: an `Agent` holds its own."""
    off = {name: getattr(config, name).model_copy(update={"enabled": False}) for name in ("skills", "exemplars")}
    return config.model_copy(update=off)


class _NullEnvironment:
    """Stands where an environment would: the user's function has its own. `outside` is what its user says of it."""

    name = "own"
    action_format: ActionFormat = "text"
    tools: tuple[ToolSpec, ...] = ()

    def __init__(self, outside: Outside | None = None) -> None:
        if outside is not None:
            self.outside = outside  # makes it a `TellsOutside`

    def describe(self, profile: str) -> str:
        return ""

    def tasks(self, split: str) -> Sequence[Task]:
        return ()

    def start(self, task: Task, seed: int = 0) -> Episode:
        raise EnvironmentFailure("an Agent solves tasks with its own function; it has no environment to start")


class Agent:
    """One's own agent with a memory that learns. An async context manager; `run` may be called many times."""

    def __init__(
        self,
        solve: Solve | None,
        config: Config,
        *,
        parts: Parts | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        """Take the function and the configuration; of `[run]` name, tags, learning, batch size and concurrency count.

        Without a function there are `ask` and `learn`. With `reflector = "rules"` and `curator = "direct"` no model is
        needed. What a model learns from what was observed is quarantined, unless `parts.outside` says who can have
        written it.
        """
        app.check_skills(config, _NullEnvironment())
        if config.exemplars.enabled:
            raise ConfigError(
                "[exemplars] enabled needs a conversation that the loop holds, and an Agent holds its own: set "
                "exemplars.enabled = false"
            )
        if config.run.judge == AGREEMENT:
            raise ConfigError("run.judge = 'agreement' compares attempts, and an Agent makes one: name another judge")
        self.run_id = new_id()
        self._solve = solve
        self._config = config
        self._parts = parts or Parts()
        self._observers = Observers(observers)
        self._exit = AsyncExitStack()
        self._policies: Policies | None = None
        self._store: Store | None = None
        self._kind = AGENT
        self._session: Session | None = None
        self._over = False
        self._batches = self._done = 0
        self._told: deque[str] = deque(maxlen=REMEMBERED)
        self._core: State = {}
        self._core_version = -1
        self._tally = Tally(0)
        self._one_at_a_time = asyncio.Lock()
        self._watched = kept()

    async def __aenter__(self) -> Agent:
        if self._over:
            raise RuntimeError("this Agent was closed, and its run has ended; make another one")
        try:
            return await self._entered()
        except BaseException:
            await self._exit.aclose()
            raise

    async def _entered(self) -> Agent:
        config, parts = self._config, self._parts
        acting, section = parts.policy, config.policy
        if not _asks(config):  # no weights are loaded then
            acting, section = acting or ScriptedPolicy((), name="none"), section.model_copy(update=dict.fromkeys(ROLES))
        made = role_policies.opened(section, config.workspace, acting, parts.roles)
        policies = await self._exit.enter_async_context(made)
        policy = policies.acting
        if self._store is None:
            self._store = self._exit.enter_context(_store_of(self._config, policy.count_tokens))
        record = session_record(self.run_id, self._kind, self._config)
        who = {"policy": policy.name, "policy_version": policy.version, "roles": role_policies.names(policies)}
        world = {"environment": _NullEnvironment.name, "gates": gates_of(self._config, None)}
        record = record.model_copy(update={**who, **world})
        self._session = Session(self._store, record, self._config.memory.namespace)
        about = Traced(self.run_id, "agent", policy, "own")
        self._exit.enter_context(traced(self._config, about, self._observers))
        self._watched = kept()  # whoever asks and tells may do so from other tasks than this one
        budget = Budget(**config.budget.model_dump(), together=False)
        self._policies = role_policies.journalled(policies, config, self._store, self.run_id, budget)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session, self._policies = self._session, None, None
        self._over = True
        try:
            if session is not None:
                session.end(error)
        finally:
            await self._exit.aclose()

    def begin(self, client: str = "") -> None:
        """Journal that the session began; done by itself with the first task."""
        if self._session is None:
            raise RuntimeError(CLOSED)
        self._session.begin(client)

    async def run(self, tasks: Iterable[Task | str]) -> list[Trajectory]:
        """Do the tasks in order, `run.batch_size` at a time, learning after each batch. Returns their trajectories."""
        todo = [_task(task) for task in tasks]
        self._tally.total += len(todo)
        done: list[Trajectory] = []
        for batch in _batches(todo, self._config.run.batch_size):
            with self._watched():
                context, state = await self._recall(batch)
                done += await all_of(self._attempt(task, context) for task in context.stream.tasks)
                await self._learn(context, state)
        return done

    async def ask(self, task: Task | str, *, learning: bool = True, memory: bool = True) -> Asked:
        """Return what is known for a task, and journal it as shown. Several tasks may be under way at the same time.

        Without `learning` all is shown that the task recalls, and `learn` stores the episode and changes nothing.
        Without `memory` nothing is shown: for what was done before anybody asked.
        """
        self._tally.total += 1
        with self._watched():
            context, state = await self._recall((_task(task),), learning=learning, memory=memory)
        (task,) = context.stream.tasks
        shown = shown_again(context.store, recalled(context.batch(0), task.id))
        text = knowledge(shown.core, shown.recalled, context.policy.profile)
        return Asked(task, text, shown, learning, context, state)

    async def learn(self, asked: Asked, given: Trajectory) -> Trajectory:
        """Store what became of a task and learn from it; return it as stored.

        What `given` names as injected was shown later, in answer to a search.
        """
        known = {item.record_id for item in asked.shown.injected}
        found = (item for item in given.injected if item.record_id not in known)
        trajectory = self._stored(given, asked.task, (*asked.shown.injected, *found), asked.context, asked.learning)
        if asked.learning:
            with self._watched():
                await self._learn(asked.context, asked.state)
        return trajectory

    async def propose(self, ops: Sequence[DeltaOp]) -> tuple[Standing, ...]:
        """Put changes that no episode of ours taught before the gates, and return what became of each."""
        context, state = self._context(self._stream(())), State(batch=0)
        submit(ops, context.batch(0))
        async with self._one_at_a_time:
            with self._watched():
                for node in (gate, commit):
                    await node(state, context)
        return tuple(standing(context.store, op, context.stream.key(0)) for op in ops)

    async def _recall(
        self, tasks: tuple[Task, ...], *, learning: bool = True, memory: bool = True
    ) -> tuple[RunContext, State]:
        context = self._context(self._stream(tasks), learning=learning)
        version = context.store.version(context.namespace)
        if version != self._core_version:  # others changed what is known
            self._core = {}
            self._core_version = version
        state: State = {"batch": 0, "core": self._core.get("core", []), "core_at": self._core.get("core_at")}
        asked = context if memory else replace(context, config=_forgetful(context.config))
        state = {**state, **await recall(state, asked)}  # pyright: ignore[reportAssignmentType] - parts of a State
        self._core = state
        return context, state

    async def _learn(self, context: RunContext, state: State) -> None:
        async with self._one_at_a_time:
            before = context.store.version(context.namespace)
            for node in (judge, expose, reflect, curate, gate, commit):
                state = {**state, **await node(state, context)}  # pyright: ignore[reportAssignmentType] - parts of a State
            if self._kind not in OUTSIDE and self._core_version == before:  # its own lessons wait for the next choice
                self._core_version = context.store.version(context.namespace)
            done, every = context.stream.before + len(context.stream.tasks), self._config.playbook.compact_every
            if self._session is not None and done // every > context.stream.before // every:
                self._session.freeze(context.stream.name)

    @watched("solve")
    async def _attempt(self, task: Task, context: RunContext) -> Trajectory:
        if self._solve is None:
            raise RuntimeError("this Agent has no function that does tasks; give it one, or use `ask` and `learn`")
        shown: Shown = shown_again(context.store, recalled(context.batch(0), task.id))
        text = knowledge(shown.core, shown.recalled, context.policy.profile)
        async with context.slots:
            with about(task.id):
                given = await _solved(self._solve, task, text)
        return self._stored(given, task, shown.injected, context)

    def _stored(
        self, given: Trajectory, task: Task, injected: tuple[Injection, ...], context: RunContext, learning: bool = True
    ) -> Trajectory:
        arm = MAIN if learning else FROZEN
        update = {"task": task, "injected": injected, "run_id": self.run_id, "arm": arm}
        trajectory = given.model_copy(update={"id": context.stream.episode_id(task.id, arm), **update})
        context.batch(0).add(trajectory)
        context.tally.add(trajectory)
        context.observers.notify(context.tally.event(trajectory))
        return trajectory

    def _stream(self, tasks: tuple[Task, ...]) -> Stream:
        self.begin()
        self._told.extend(task.instruction for task in tasks)
        name, before = f"b{self._batches}", self._done
        self._batches += 1
        self._done += len(tasks)
        return Stream(self.run_id, tasks, max(len(tasks), 1), self._config.run.seed, name=name, before=before)

    def _context(self, stream: Stream, *, learning: bool = True) -> RunContext:
        if self._store is None or self._policies is None:
            raise RuntimeError(CLOSED)
        config, parts = self._config, self._parts
        return RunContext(
            config=config,
            store=self._store,
            environment=_NullEnvironment(parts.outside),
            policies=self._policies,
            acting=RolloutConfig(world=""),
            reflector=parts.reflector or app.make_reflector(config, self._policies.reflector),
            curator=parts.curator or app.make_curator(config, self._policies, keeper(self._store), self._store),
            gates=app.make_gates(config, own=parts.gates, tasks=self._told.copy) if learning else (),
            stream=stream,
            tally=self._tally,
            observers=self._observers,
            slots=asyncio.Semaphore(config.run.concurrency),
            reporter=Trust.IMPORTED if self._kind in OUTSIDE else Trust.VERIFIED,
        )


def hosted(config: Config, *, kind: str = AGENT, store: Store | None = None, parts: Parts | None = None) -> Agent:
    """Return an agent without a function, for who asks and tells on behalf of others.

    A `store` that is open already stays open. `kind` says in lists of runs what this is.
    """
    agent = Agent(None, config, parts=parts)
    agent._store, agent._kind = store, kind  # pyright: ignore[reportPrivateUsage] - of this module
    return agent


def _store_of(config: Config, count_tokens: Callable[[str], int]) -> Store:
    """Open the workspace; while another process owns its vector index, without it: then all vectors are compared."""
    try:
        return app.open_store(config, count_tokens)
    except IndexLocked:
        return app.open_store(config, count_tokens, owner=False)


def _asks(config: Config) -> bool:
    """Tell whether any role asks a model; where none does, no policy is made."""
    writers = {config.playbook.reflector, *config.playbook.curator.split("+")}
    judged = config.run.label_free and config.run.judge == "policy"
    asking = {name for name in writers if ":" not in name} - {"rules", "none", "direct", "append", "regimes", "batch"}
    return judged or bool(asking)


async def _solved(solve: Solve, task: Task, knowledge: str) -> Trajectory:
    what = "the function that solves tasks"
    with users(what):
        said = solve(task, knowledge)
        given: object = await said if inspect.isawaitable(said) else said
    return _checked(what, solve, given)


def _checked(what: str, solve: Solve, given: object) -> Trajectory:
    if not isinstance(given, Trajectory):
        raise broke_contract(what, solve, given, "evolve.Trajectory(task=task, steps=..., outcome=...)")
    if given.outcome is not None:
        checked_outcome(what, solve, given.outcome)
    return given


def _task(task: Task | str) -> Task:
    """Return a task, under an id of its instruction where that is all there is. Raises `BadInput` for a blank one."""
    if isinstance(task, Task):
        return task
    if not isinstance(task, str):  # pyright: ignore[reportUnnecessaryIsInstance] - it is a caller's
        raise BadInput(f"got {task!r} for a task; expected what is to be done in words, or a Task")
    if not task.strip():
        raise BadInput("got a task without a word; say what is to be done, or give a Task with an id of its own")
    return Task(id=id_for("task", task), instruction=task)


def _batches(tasks: Sequence[Task], size: int) -> Iterator[tuple[Task, ...]]:
    """Yield the tasks in order, `size` at a time; one that comes again begins a batch, which holds an id once."""
    batch: list[Task] = []
    for task in tasks:
        if len(batch) == size or any(task.id == each.id for each in batch):
            yield tuple(batch)
            batch = []
        batch.append(task)
    if batch:
        yield tuple(batch)


def _forgetful(config: Config) -> Config:
    return config.model_copy(update={"playbook": config.playbook.model_copy(update={"enabled": False})})
