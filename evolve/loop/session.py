"""Starts and resumes runs: builds the objects, says beforehand what it will cost, runs the mode, closes everything.

`run` and `resume` are what the CLI and `import evolve` offer. Objects given in `Parts` take the place of those that the
configuration names, so a model or an environment in hand needs no dotted path.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.environments.validation import check_shape, check_splits
from evolve.episode.agreement import check as check_agreement
from evolve.episode.arms import MAIN, NO_MEMORY
from evolve.episode.exemplars.shown_exemplars import check as check_exemplars
from evolve.episode.metrics import Metrics, summarize
from evolve.episode.rollout import Executor
from evolve.episode.search import invitation
from evolve.episode.world_texts import WorldTexts, keep
from evolve.errors import ConfigError, UserCodeError
from evolve.gates.call_budget import CallBudget
from evolve.gates.context import Bench
from evolve.gates.evaluator import Evaluator, episodes_of
from evolve.gates.splits import splits_there
from evolve.generations import workspace_registry as generations
from evolve.loop import assembly as app
from evolve.loop import role_policies, servers
from evolve.loop.batch import Stream
from evolve.loop.controls import WorldCost, control_share, estimate, gate_advance, sampled
from evolve.loop.evaluate import EvalReport
from evolve.loop.live import gates_of, is_live, refuse_repeats, stack_sentence
from evolve.loop.modes.frozen import frozen
from evolve.loop.modes.offline import offline
from evolve.loop.modes.online import online
from evolve.loop.modes.quarantine import quarantine
from evolve.loop.nodes.attempt import check as check_attempts
from evolve.loop.rollout_settings import rollout_config
from evolve.loop.runs import (
    DONE,
    RESUMABLE,
    STOPPED,
    Run,
    RunRecord,
    keeper,
    load_run,
    recorded,
    save_run,
    spent,
    started_with,
    working_on,
)
from evolve.loop.state import RunContext, Turn
from evolve.progress import Notice, Observer, Observers, RunFinished, RunStarted, Tally
from evolve.protocols import Environment, stop_of
from evolve.telemetry.described import Traced
from evolve.telemetry.start import traced
from evolve.usercode import tools_of
from memory.errors import EvolveError, NotFound
from memory.protocols import Gate
from memory.records import Frozen, Task, Trajectory, new_id
from memory.scratch import sweep
from memory.store import Store
from playbooks.protocols import Curator, Reflector
from policies.budget import Budget
from policies.errors import BudgetExceeded
from policies.protocols import Policy
from policies.roles import Policies, Role

MODES: dict[str, Callable[[Run], Awaitable[tuple[EvalReport, ...]]]] = {
    "online": online,
    "offline": offline,
    "frozen": frozen,
    "quarantine": quarantine,
}

SELF_JUDGED = (
    "nobody grades: a task becomes an exemplar where its last action worked, or the policy judges it solved; such "
    "exemplars are self-judged"
)

Outside = Callable[[Trajectory], Sequence[str]]
"""Returns the texts of an episode that strangers can have written."""


@dataclass(frozen=True)
class Parts:
    """Objects to use instead of those the configuration names."""

    policy: Policy | None = None
    environment: Environment | None = None
    reflector: Reflector | None = None
    curator: Curator | None = None
    gates: tuple[Gate, ...] | None = None
    turn: Turn | None = None
    """Given by whoever lets several runs take turns."""
    outside: Outside | None = None
    """For an `Agent`, which has no environment: the texts of an episode that strangers can have written."""
    roles: Mapping[Role, Policy] = field(default_factory=dict[Role, Policy])
    """Policies of single roles; of the others those that the configuration names, else `policy`."""


class RunResult(Frozen):
    """What a run came to."""

    run_id: str
    status: str
    """`done`, or `stopped` when a budget ran out (resumable)."""
    reason: str = ""
    metrics: Metrics | None = None
    """The stream's main arm, as it was predicted; None for a frozen run."""
    control: Metrics | None = None
    """The stream's no-memory control."""
    evaluations: tuple[EvalReport, ...] = ()
    snapshot_id: str | None = None
    """Knowledge at the end."""


def run(config: Config, *, parts: Parts | None = None, observers: Iterable[Observer] = ()) -> RunResult:
    """Start a run and wait for it. Raises `EvolveError` subclasses; what was learned until then is kept."""
    return asyncio.run(arun(config, parts=parts, observers=observers))


def resume(
    config: Config, run_id: str | None = None, *, parts: Parts | None = None, observers: Iterable[Observer] = ()
) -> RunResult:
    """Go on with a stopped or killed run (default: the latest) as it was started; budget and speed are `config`'s."""
    return asyncio.run(aresume(config, run_id, parts=parts, observers=observers))


async def arun(config: Config, *, parts: Parts | None = None, observers: Iterable[Observer] = ()) -> RunResult:
    """`run` for code that is in an event loop already."""
    async with _Opened.open(config, parts or Parts()) as opened:
        return await _go(opened, _plan(opened), Observers(observers), resumed=False)


async def aresume(
    config: Config, run_id: str | None = None, *, parts: Parts | None = None, observers: Iterable[Observer] = ()
) -> RunResult:
    """`resume` for code that is in an event loop already. Raises `NotFound` for an unknown run."""
    with app.open_store(config, read_only=True) as store:
        record = load_run(store, run_id)
    if record.kind not in RESUMABLE:
        raise NotFound(f"run {record.run_id!r} is of kind {record.kind!r}, and only runs of tasks can be resumed")
    if record.status == DONE:
        raise NotFound(
            f"run {record.run_id!r} is done, there is nothing to go on with: `evolve report {record.run_id}`"
        )
    async with _Opened.open(started_with(record, config), parts or Parts()) as opened:
        return await _go(opened, record, Observers(observers), resumed=True)


@dataclass(frozen=True)
class _Opened:
    """The objects of a session. What it made itself it also closes."""

    config: Config
    parts: Parts
    policies: Policies
    environment: Environment
    store: Store

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Config, parts: Parts) -> AsyncGenerator[_Opened]:
        environment = parts.environment or app.make_environment(config)
        check_shape(environment)
        refuse_repeats(config, environment)
        app.check_skills(config, environment)
        _check_tasks(config, environment)
        async with role_policies.opened(config.policy, config.workspace, parts.policy, parts.roles) as policies:
            check_exemplars(config, policies.acting)
            check_agreement(config, environment)
            check_attempts(config, environment, policies)
            with app.open_store(config, policies.acting.count_tokens) as store:
                yield cls(config, parts, policies, environment, store)

    @property
    def policy(self) -> Policy:
        """Return the acting policy."""
        return self.policies.acting

    @property
    def free(self) -> bool:
        """Tell whether a model call costs nothing but time."""
        return app.is_free(self.policy, self.config.policy)

    @property
    def advance(self) -> int:
        """Return how many calls the gates may make before the stream has made its share of them."""
        return gate_advance(self.config, free=self.free)

    @property
    def share(self) -> tuple[float, str]:
        return control_share(self.config, free=self.free, live=is_live(self.environment))


def _check_tasks(config: Config, environment: Environment) -> None:
    """Refuse what the run would work through, before a model is loaded. Raises as `load_tasks` and `check_splits`."""
    run, split = config.run, config.run.split
    if run.mode == "quarantine":
        return
    wanted = run.eval_splits if run.mode == "frozen" else (split,)
    found = {name: load_tasks(config, environment, name) for name in wanted}
    beside = {split, *run.eval_splits} - set(found)
    if not is_live(environment):
        found |= splits_there(config, environment, beside)
    check_splits(environment.name, found)


def _plan(opened: _Opened) -> RunRecord:
    """Return the record of a new run: its tasks are fixed before the first of them starts."""
    config = opened.config
    tasks: tuple[Task, ...] = ()
    if config.run.mode not in ("frozen", "quarantine"):
        tasks = load_tasks(config, opened.environment, config.run.split)
        if len(tasks) <= config.run.skip:
            raise ConfigError(
                f"got run.skip = {config.run.skip}, and split {config.run.split!r} has {len(tasks)} tasks: none is left"
            )
        tasks = tasks[config.run.skip :][: config.run.tasks]
    return RunRecord(
        run_id=new_id(),
        name=config.run.name,
        tags=config.run.tags,
        mode=config.run.mode,
        config=config.model_dump(mode="json", exclude={"root"}),
        config_hash=config.digest,
        policy=opened.policy.name,
        policy_version=opened.policy.version,
        roles=role_policies.names(opened.policies),
        environment=opened.environment.name,
        tasks=tuple(task.id for task in tasks),
        control=tuple(sorted(sampled(tasks, opened.share[0], config.run.seed))),
        gates=gates_of(config, opened.environment),
    )


async def _go(opened: _Opened, record: RunRecord, observers: Observers, *, resumed: bool) -> RunResult:
    """Run the record's mode to its end, or to the next resumable stop."""
    store, about = opened.store, Traced(record.run_id, record.mode, opened.policy, opened.environment.name)
    with working_on(opened.store, record.run_id), traced(opened.config, about, observers):
        sweep(opened.config.workspace)
        budget = Budget(
            **opened.config.budget.model_dump(), spent=spent(store, record.run_id), earlier_s=record.seconds
        )
        async with _executor(opened, record.run_id, budget) as executor:
            run = _assemble(opened, record, observers, budget, executor)
            _announce(opened, run, resumed=resumed)
            return await _worked(opened, record, run, observers)


async def _worked(opened: _Opened, record: RunRecord, run: Run, observers: Observers) -> RunResult:
    """Run the record's mode; what stops it is told to the observers, too."""
    store = opened.store
    try:
        async with recorded(store, record, opened.policy.version):
            await servers.look(opened.policies, store, record.run_id, run.budget, observers)
            reports = await MODES[record.mode](run)
    except BudgetExceeded as used_up:
        observers.notify(RunFinished(run_id=record.run_id, status=STOPPED, reason=str(used_up)))
        return _result(run, (), STOPPED, str(used_up))
    except EvolveError as error:
        observers.notify(RunFinished(run_id=record.run_id, status=STOPPED, reason=str(error)))
        if isinstance(error, UserCodeError):
            error.resume = f"run {record.run_id} is stopped, what was done is kept; mend it, then `evolve resume`"
        raise
    result = _result(run, reports, "done", "")
    latest = load_run(store, record.run_id)
    save_run(store, latest.model_copy(update={"snapshot_id": result.snapshot_id}))
    observers.notify(RunFinished(run_id=record.run_id, status="done"))
    return result


@asynccontextmanager
async def _executor(opened: _Opened, run_id: str, budget: Budget) -> AsyncGenerator[Executor | None]:
    """Give what does the episodes elsewhere; None where they are done here."""
    if opened.config.run.executor == "local":
        yield None
        return
    if opened.parts.environment is not None:
        raise ConfigError(
            "the environment was given as an object, and workers make theirs from its name; write environment.name, or "
            "leave run.executor = 'local'"
        )
    from evolve.loop.executors import ray, ray_worlds

    if opened.parts.policy is not None or opened.parts.roles:
        _require_plain(opened)
        async with ray_worlds.opened(opened.config.run.workers) as answered_here:
            answered_here.know(opened.config, opened.environment)
            yield answered_here
        return
    async with ray.opened(opened.config, run_id, opened.policies, budget) as executor:
        yield executor


def _require_plain(opened: _Opened) -> None:
    """Raise `ConfigError` where episodes want more of this process than the replies of one policy."""
    teacher, searches = opened.config.policy.teacher, opened.config.playbook.search_k
    if teacher.plan_review or teacher.retry or searches:
        raise ConfigError(
            "the policy is an object (a comparison's lives share it), so that workers ask this process for its "
            "replies, and for nothing else; got "
            f"policy.teacher.plan_review = {teacher.plan_review}, retry = {teacher.retry}, playbook.search_k = "
            f"{searches}: switch them off, write policy.name, or leave run.executor = 'local'"
        )


def _assemble(
    opened: _Opened, record: RunRecord, observers: Observers, budget: Budget, executor: Executor | None
) -> Run:
    """Return the run with its dependencies; the policy is journalled, then budgeted, then the model."""
    config, store, parts = opened.config, opened.store, opened.parts
    policies = role_policies.journalled(opened.policies, config, store, record.run_id, budget)
    policy = policies.acting
    acting = replace(rollout_config(config, opened.environment, policies), executor=executor)
    words = WorldTexts(
        text=acting.world,
        searching=invitation(config, policy.profile),
        profile=policy.profile,
        tools=opened.environment.tools,
        demonstration=acting.demonstration,
        stop=stop_of(opened.environment),
    )
    keep(store, record.run_id, words)
    tasks = _tasks(opened, record)
    stream = Stream(record.run_id, tasks, config.run.batch_size, config.run.seed, control=frozenset(record.control))
    done = store.trajectories(run_id=record.run_id)
    earlier = store.trajectories(run_id=episodes_of(record.run_id))
    purse = CallBudget(config.gate.calls_ratio, earlier, advance=opened.advance)
    bench = Bench(Evaluator(config, store, opened.environment, policy, acting, record.run_id, purse), tasks)
    context = RunContext(
        config=config,
        store=store,
        environment=opened.environment,
        policies=policies,
        acting=acting,
        reflector=parts.reflector or app.make_reflector(config, policies.reflector),
        curator=parts.curator or app.make_curator(config, policies, keeper(store), store, opened.environment),
        gates=app.make_gates(config, bench, parts.gates),
        stream=stream,
        tally=Tally(_planned(opened, record), done),
        observers=observers,
        slots=asyncio.Semaphore(config.run.concurrency),
        turn=parts.turn,
        purse=purse,
    )
    return Run(context=context, record=record, share=opened.share[0], budget=budget)


def _tasks(opened: _Opened, record: RunRecord) -> tuple[Task, ...]:
    """Return the record's tasks as the environment makes them now. Raises `RunMismatch` when some are gone."""
    from evolve.errors import RunMismatch

    if not record.tasks:
        return ()
    found = {task.id: task for task in load_tasks(opened.config, opened.environment, opened.config.run.split)}
    gone = [task_id for task_id in record.tasks if task_id not in found]
    if gone:
        raise RunMismatch(
            f"run {record.run_id!r} was started with task {gone[0]!r}, which {opened.environment.name!r} "
            "no longer has; restore the environment's settings or start a new run"
        )
    return tuple(found[task_id] for task_id in record.tasks)


def _planned(opened: _Opened, record: RunRecord) -> int:
    """Return how many episodes of the main arm the run holds, validation included."""
    run = opened.config.run

    def size(split: str) -> int:
        return len(load_tasks(opened.config, opened.environment, split))

    if record.mode == "frozen":
        return sum(min(size(split), run.tasks or size(split)) for split in run.eval_splits)
    if record.mode == "offline":
        return len(record.tasks) * run.epochs + size(run.dev_split) * (run.epochs + 1)
    return len(record.tasks)


def _world_cost(opened: _Opened, run: Run) -> WorldCost:
    """Return what the world takes of every prompt; of the tools, the mean over the tasks."""
    acting, environment, count = run.context.acting, opened.environment, opened.policy.count_tokens
    offered = [tools_of(environment, task) for task in run.context.stream.tasks] or [environment.tools]
    specs = {spec.name: spec for tools in offered for spec in tools}
    sizes = {name: count(spec.model_dump_json()) for name, spec in specs.items()}
    tools = sum(sizes[spec.name] for tools in offered for spec in tools) // len(offered)
    return WorldCost(
        tokens=count(acting.world + invitation(opened.config, opened.policy.profile)) + tools,
        max_steps=acting.max_steps,
        gate_advance=opened.advance,
    )


def _announce(opened: _Opened, run: Run, *, resumed: bool) -> None:
    """Say what will be done, what it may cost, and which control is missing."""
    record, config, notify = run.record, run.config, run.context.observers.notify
    planned = run.context.tally.total
    count = planned if record.mode == "frozen" else len(record.tasks)
    passes = config.run.epochs if record.mode == "offline" else 1
    share, why = opened.share
    world = _world_cost(opened, run)
    cost = estimate(config, count, share, world, validation=planned - count * passes, gates=record.gates)
    notify(RunStarted(run_id=record.run_id, mode=record.mode, tasks=planned, estimate=cost.sentence, resumed=resumed))
    if preset := config.applied_preset:
        notify(Notice(run_id=record.run_id, text=preset.sentence))
    if generation := generations.sentence(opened.policy):
        notify(Notice(run_id=record.run_id, text=generation))
    if others := role_policies.names(opened.policies):
        notify(Notice(run_id=record.run_id, text=role_policies.sentence(others)))
    if stack := stack_sentence(config, opened.environment):
        notify(Notice(run_id=record.run_id, text=stack))
    if config.exemplars.enabled and config.run.label_free:
        notify(Notice(run_id=record.run_id, text=SELF_JUDGED))
    if why:
        notify(Notice(run_id=record.run_id, text=why))
    for text in role_policies.changes({"policy": record.policy_version, **record.roles}, opened.policies):
        notify(Notice(run_id=record.run_id, text=text))


def _result(run: Run, reports: tuple[EvalReport, ...], status: str, reason: str) -> RunResult:
    """Return the figures of the run so far. With several epochs, the last pass of each task counts."""
    context, record = run.context, run.record
    snapshot = context.store.snapshot(context.namespace)

    def arm(name: str, tasks: tuple[Task, ...]) -> Metrics | None:
        done = {t.task.id: t for t in context.store.trajectories(run_id=record.run_id, arm=name)}
        return summarize(tasks, list(done.values())) if done else None

    control = tuple(task for task in context.stream.tasks if task.id in context.stream.control)
    return RunResult(
        run_id=record.run_id,
        status=status,
        reason=reason,
        metrics=arm(MAIN, context.stream.tasks),
        control=arm(NO_MEMORY, control),
        evaluations=reports,
        snapshot_id=f"{snapshot.id}@{snapshot.position}",
    )
