"""The contract of an environment as checks that play it: `evolve env check` runs them on anybody's environment.

Each check is a function from a `Subject` to what it found. An optional capability that is not there skips its checks
and says what it would prove. Nothing is stored and no model is asked.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from evolve.environments.validation import check_shape, check_splits
from evolve.errors import EnvironmentFailure
from evolve.protocols import (
    Action,
    Demonstration,
    Environment,
    HasAnswers,
    HasCanaries,
    HasDemonstration,
    HasFirstScene,
    HasGold,
    HasOpening,
    StateDiff,
    StepResult,
    TellsOutside,
    max_steps_of,
)
from evolve.usercode import ask, ask_list, begun, open_episode, places, tools_of
from memory.errors import EvolveError
from memory.records import Frozen, Outcome, Step, Task, ToolCall, Trajectory

SPLITS = ("train", "dev", "test_normal", "test_challenge")
SAMPLE = 6
"""Tasks of each split that are played."""
LIMIT_S = 120.0
"""Seconds that one check may take."""

Tasks = Mapping[str, tuple[Task, ...]]
Load = Callable[[Environment], Tasks]
"""Lists the tasks of each split that an environment has."""


class Finding(Frozen):
    """What one check found."""

    check: str
    result: Literal["passed", "failed", "skipped"]
    text: str = ""
    """Of a failed check what is wrong, of a skipped one what is missing."""


class Failed(Exception):
    """A check found something wrong."""


class Skipped(Exception):
    """A check needs a capability that the environment does not have."""


@dataclass(frozen=True)
class Subject:
    """The environment under test: two of it, made alike, and the tasks that are played."""

    world: Environment
    again: Environment
    splits: Tasks
    load: Load
    sample: int = SAMPLE
    max_steps: int | None = None
    """Actions an episode may take, where the settings say so."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks that are played, spread over each split."""
        found = list[Task]()
        for tasks in self.splits.values():
            found += tasks[:: max(1, len(tasks) // self.sample)][: self.sample]
        return tuple(found)

    def gold(self, task: Task) -> list[Action]:
        """Return the gold actions. Raises `Skipped`."""
        if not isinstance(self.world, HasGold):
            raise Skipped("no gold(task): add it, and the checks prove that the grader accepts a right solution")
        return list(ask_list(self.world, "gold", Action, task))


async def examine(
    make: Callable[[], Environment],
    load: Load,
    *,
    sample: int = SAMPLE,
    max_steps: int | None = None,
    limit: float = LIMIT_S,
) -> tuple[Finding, ...]:
    """Return what every check finds; where the environment cannot be listed at all, that alone.

    A check that takes more than `limit` seconds has failed. SIGALRM stops code that blocks, so call this in the main
    thread.
    """
    world = make()
    try:
        check_shape(world)
        splits = load(world)
        if not any(splits.values()):
            raise Failed(f"no tasks in any of the splits {', '.join(SPLITS)}")
        subject = Subject(world, make(), splits, load, sample, max_steps)
    except (Failed, EvolveError) as wrong:
        return (Finding(check="shape", result="failed", text=str(wrong)),)
    return (Finding(check="shape", result="passed"), *[await _found(name, subject, limit) for name in CHECKS])


async def play(environment: Environment, task: Task, actions: Sequence[Action], seed: int = 0) -> Outcome:
    """Perform the actions in a fresh episode and grade it."""
    episode, _ = await begun(environment, task, seed)
    try:
        for action in actions:
            if (await episode.step(action)).done:
                break
        return await episode.grade()
    finally:
        await episode.close()


async def _found(name: str, subject: Subject, limit: float) -> Finding:
    try:
        with _interrupted(limit):
            async with asyncio.timeout(limit):
                await CHECKS[name](subject)
    except TimeoutError as late:
        stuck = late.__cause__ or late.__context__  # Python before 3.11.3 names no cause
        where = places(stuck) if stuck else []
        at = f" ({where[-1].filename}:{where[-1].lineno})" if where else ""
        return Finding(check=name, result="failed", text=f"{_late(limit)}{at}")
    except Skipped as missing:
        return Finding(check=name, result="skipped", text=str(missing))
    except EnvironmentFailure as broke:
        return Finding(check=name, result="failed", text=f"the environment says that it broke: {broke}")
    except (Failed, EvolveError) as wrong:
        return Finding(check=name, result="failed", text=str(wrong))
    return Finding(check=name, result="passed")


@contextmanager
def _interrupted(limit: float) -> Generator[None]:
    """Raise `TimeoutError` in what still runs a second after the limit; an event loop cannot stop code that blocks."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(_late(limit))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit + 1, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _late(limit: float) -> str:
    return f"had not ended after {limit:g} s; if the environment is slow and not stuck, raise --limit"


async def _splits(subject: Subject) -> None:
    check_splits(subject.world.name, subject.splits)
    for split, tasks in subject.splits.items():
        for task in tasks:
            if task.split != split:
                raise Failed(f"task {task.id!r} of split {split!r} says split={task.split!r}; set Task.split")


async def _repeats(subject: Subject) -> None:
    if subject.load(subject.again) != subject.splits:
        raise Failed("made twice with the same settings, it lists other tasks; draw them from a seed of the settings")
    for profile in ("full", "compact"):
        if ask(subject.world, "describe", str, profile) != ask(subject.again, "describe", str, profile):
            raise Failed(f"describe({profile!r}) says something else the second time; nothing random belongs there")


async def _gold(subject: Subject) -> None:
    for task in subject.tasks:
        actions = subject.gold(task)
        outcome = await play(subject.world, task, actions)
        if not (outcome.success and outcome.reward == 1.0):
            missed = [check.name for check in outcome.checks if not check.passed]
            raise Failed(f"gold of task {task.id!r} earns {outcome.reward}, expected 1.0; checks missed: {missed}")
        most = max_steps_of(subject.world, subject.max_steps)
        if len(actions) > most:
            raise Failed(f"gold of task {task.id!r} takes {len(actions)} actions and max_steps is {most}; raise it")


async def _nothing(subject: Subject) -> None:
    for task in subject.tasks:
        idle: list[list[Action]] = [[], [Action(text="")]]
        if isinstance(subject.world, HasGold) and subject.world.action_format == "tools":
            idle.append([action for action in subject.gold(task) if not action.tool_calls])
        for actions in idle:
            outcome = await play(subject.world, task, actions)
            if outcome.success or outcome.reward >= 1.0:
                raise Failed(f"task {task.id!r} is solved by doing nothing ({len(actions)} empty actions)")


async def _same_grade(subject: Subject) -> None:
    seeds = (0, 1) if getattr(subject.world, "seedless", False) else (0, 0)
    for task in subject.tasks:
        actions = subject.gold(task) if isinstance(subject.world, HasGold) else [Action(text="help")]
        first, second = [await play(subject.world, task, actions, seed) for seed in seeds]
        if (first.success, first.reward) != (second.success, second.reward):
            why = "seedless = True, and seeds 0 and 1" if len(set(seeds)) > 1 else "the same seed and actions twice"
            raise Failed(f"task {task.id!r}: {why} earn {first.reward} and {second.reward}")


async def _apart(subject: Subject) -> None:
    if getattr(subject.world, "max_concurrency", None) == 1:
        raise Skipped("max_concurrency = 1: only one episode is open at a time")
    for task in subject.tasks:
        actions = subject.gold(task)
        async with AsyncExitStack() as stack:
            idle, _ = await begun(subject.world, task, 0)
            stack.push_async_callback(idle.close)
            busy, _ = await begun(subject.world, task, 0)
            stack.push_async_callback(busy.close)
            for action in actions:
                await busy.step(action)
            if (await idle.grade()).success:
                raise Failed(f"task {task.id!r}: an episode is solved by what another one did; give each its own state")


NONSENSE: Mapping[str, tuple[Action, ...]] = {
    "code": (Action(text="1 / 0"), Action(text="x = ("), Action(text="\x00")),
    "tools": tuple(
        Action(tool_calls=(ToolCall(id="1", name=name, arguments=arguments),))
        for name, arguments in (("nothing_like_it", {}), ("", {}), ("nothing_like_it", {"number": "x"}))
    ),
    "text": (Action(text="xyzzy"), Action(text="("), Action(text="\x00")),
}
"""Mistakes of an agent by action format."""


async def _capabilities(subject: Subject) -> None:
    """Call what a task may offer beside the rest: a first scene, before it begins too, and tools of its own."""
    offered = {tool.name for tool in subject.world.tools}
    for task in subject.tasks:
        episode = open_episode(subject.world, task, 0)
        try:
            if isinstance(episode, HasOpening):
                await episode.opening()
        finally:
            await episode.close()
        if isinstance(subject.world, HasFirstScene):
            ask(subject.world, "first_scene", str, task)
        more = sorted({tool.name for tool in tools_of(subject.world, task)} - offered)
        if more:
            raise Failed(f"tools_for task {task.id!r} names {', '.join(more)}, which `tools` does not have")


async def _readings(subject: Subject) -> None:
    """Call what reads an episode that is over: its answer, and what strangers can have written in it."""
    world = subject.world
    answers, outside = isinstance(world, HasAnswers), isinstance(world, TellsOutside)
    if not answers and not outside:
        raise Skipped("no answer(episode) and no outside(episode): attempts cannot agree, every observation is outside")
    for task in subject.tasks:
        step = Step(index=0, action="help", observation="")
        for episode in (Trajectory(task=task), Trajectory(task=task, steps=(step,))):
            if answers:
                ask(subject.world, "answer", str | None, episode)
            if outside:
                ask_list(subject.world, "outside", str, episode)


async def _mistakes(subject: Subject) -> None:
    task, form = subject.tasks[0], subject.world.action_format
    episode, _ = await begun(subject.world, task, 0)
    try:
        for action in NONSENSE[form]:
            result = await episode.step(action)
            _mistake(result, action, must=form != "text")
            if result.done:
                break
    finally:
        await episode.close()


def _mistake(result: StepResult, action: Action, *, must: bool) -> None:
    wrong = action.text or action.tool_calls[0].name
    if must and not result.error:
        raise Failed(f"the wrong action {wrong!r} is answered without StepResult.error, which lessons are read from")
    if result.error and result.error not in result.observation:
        raise Failed(f"the error of {wrong!r} is not in the observation: the agent does not see {result.error!r}")


def _needs_state_diff(subject: Subject) -> None:
    if not isinstance(subject.world, StateDiff):
        raise Skipped("no state_changing(task) and extra_write(task): add them where the grader compares states")


async def _dropped(subject: Subject) -> None:
    _needs_state_diff(subject)
    for task in subject.tasks:
        actions = subject.gold(task)
        for index in ask_list(subject.world, "state_changing", int, task):
            if (await play(subject.world, task, actions[:index] + actions[index + 1 :])).success:
                raise Failed(f"task {task.id!r} is solved without the write {actions[index]!r}")


async def _extra(subject: Subject) -> None:
    _needs_state_diff(subject)
    for task in subject.tasks:
        actions = subject.gold(task)
        at = max(ask_list(subject.world, "state_changing", int, task), default=0)
        more = ask(subject.world, "extra_write", Action, task)
        if (await play(subject.world, task, [*actions[:at], more, *actions[at:]])).success:
            raise Failed(f"task {task.id!r} is solved although something else was written too")


async def _canaries(subject: Subject) -> None:
    if not isinstance(subject.world, HasCanaries):
        raise Skipped("no canaries() and breaches(task): gate 'canary' has nothing to watch here")
    known = {task.id for tasks in subject.splits.values() for task in tasks}
    for task in ask_list(subject.world, "canaries", Task)[: subject.sample]:
        if task.id in known:
            raise Failed(f"canary task {task.id!r} is in a split, too")
        for breach in ask_list(subject.world, "breaches", Sequence, task):
            if (await play(subject.world, task, breach)).success:
                raise Failed(f"canary task {task.id!r} is solved by a breach of its rule")


async def _demonstration(subject: Subject) -> None:
    if not isinstance(subject.world, HasDemonstration):
        raise Skipped("no demonstration(): a worked example helps small models to write actions at all")
    shown = ask(subject.world, "demonstration", Demonstration)
    if any(task.instruction == shown.instruction for tasks in subject.splits.values() for task in tasks):
        raise Failed("demonstration() shows a task of a split; show one of no split, which gives nothing away")
    if subject.world.action_format == "code" and "```" not in shown.reply:
        raise Failed(
            f"demonstration() replies {shown.reply[:60]!r}; where actions are code, put it in a ```python block"
        )
    if not shown.reply.strip():
        raise Failed("demonstration() has an empty reply; give what an agent should write")


CHECKS: Mapping[str, Callable[[Subject], Awaitable[None]]] = {
    "splits": _splits,
    "same tasks again": _repeats,
    "gold earns 1.0": _gold,
    "doing nothing earns less": _nothing,
    "same actions, same grade": _same_grade,
    "episodes apart": _apart,
    "first scene and tools of a task": _capabilities,
    "demonstration": _demonstration,
    "what is read of an episode": _readings,
    "mistakes are observations": _mistakes,
    "a dropped write fails": _dropped,
    "an extra write fails": _extra,
    "canaries": _canaries,
}
"""Name -> check, in the order they are run."""


def lines(findings: Sequence[Finding]) -> list[str]:
    """Return the findings as text for people."""
    marks = {"passed": "ok     ", "failed": "WRONG  ", "skipped": "skipped"}
    return [f"{marks[each.result]} {each.check}" + (f": {each.text}" if each.text else "") for each in findings]
