"""One episode: prompt, act, observe, grade. A bad episode is data; only what nobody expected is raised.

Not here: what to recall, what to learn, and where the result is stored. A failure is classified at this boundary: the
policy refusing a request in the middle of an episode and the environment breaking end up in `Trajectory.error`; a dead
server, a used-up budget and a policy that refuses the very first request stop the run instead, which can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from evolve.episode.arms import NO_MEMORY
from evolve.episode.exemplars.shown_exemplars import with_examples
from evolve.episode.instrumentation import watched
from evolve.episode.prompting import (
    NO_CODE,
    SkillList,
    actions_of,
    answered,
    forget_oldest,
    knowledge,
    opening_messages,
    shortened,
    step_messages,
)
from evolve.episode.search import SEARCH, Search, asked
from evolve.episode.skill_runtime.prelude import Started, start
from evolve.episode.skill_runtime.skill_actions import answered as skill_answered
from evolve.episode.skill_runtime.skill_actions import asked as skill_asked
from evolve.episode.teacher import PLAN, Teacher
from evolve.errors import EnvironmentFailure
from evolve.parallel import slot
from evolve.protocols import (
    DEFAULT_MAX_STEPS,
    Action,
    Demonstration,
    Environment,
    Episode,
    HasTaskTools,
    StepResult,
    stop_of,
)
from evolve.seeds import seed_for
from evolve.usercode import tools_of
from memory.records import Injection, Outcome, Record, Step, StopReason, Task, ToolCall, Trajectory, Usage
from playbooks.render import neutral
from policies.errors import BudgetExceeded, PolicyError, PolicyRefused, PolicyUnavailable
from policies.protocols import Message, Policy, Profile, Reply, SamplingParams
from skills.listing import catalogue

SameName = Literal["kept", "replaced"]
"""What becomes of a skill of a chain whose name a later task gives to another function.

kept      it stays, and the function is left out; where it was shown in that task, the function is its next version,
          and still the first author's
replaced  the function takes its place, as in SAGE's paper, and is its own author's
"""


@dataclass(frozen=True)
class RolloutConfig:
    """How episodes are done, the same for all of a run. `world` is what `prompting.briefing` returns."""

    world: str
    max_steps: int = DEFAULT_MAX_STEPS
    observation_chars: int = 20_000
    """Most characters of an observation that the agent reads."""
    history_chars: int = 200_000
    """Most characters of a conversation; above it the oldest observations are left out."""
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    skills: bool = False
    """The agent works with skills: it is told which there are, and in the full profile how to save its own."""
    saves: bool = True
    """What it saves may be kept; where a workspace is frozen it is not told how."""
    same_name: SameName = "kept"
    require_code: bool = False
    """A reply without code ends the episode (`StopReason.FORMAT`); otherwise it is answered by an error."""
    described: str = ""
    """What the gates are told of the world (`prompting.described`): by it a skill that the agent saves is answered."""
    demonstration: Demonstration | None = None
    """The world's worked example (`prompting.demonstrated`), shown where no exemplar is."""
    teacher: Teacher | None = None
    """Advises inside episodes; None = nobody does."""
    executor: Executor | None = field(default=None, repr=False, compare=False)
    """Does the episodes elsewhere, by the same configuration; None = they are done in this process."""


@dataclass(frozen=True)
class Attempt:
    """One planned episode: the task, what is shown, and the seed that step seeds are derived from."""

    id: str
    task: Task
    seed: int
    core: tuple[Record[Any], ...] = ()
    recalled: tuple[Record[Any], ...] = ()
    injected: tuple[Injection, ...] = ()
    skills: tuple[Record[Any], ...] = ()
    """Functions that are defined when the episode begins, callees first."""
    exemplars: tuple[Record[Any], ...] = ()
    """Solved tasks, shown as earlier turns in this order."""
    run_id: str = ""
    arm: str = "main"
    snapshot_id: str | None = None
    search: Search | None = None
    """Answers the agent's searches; None = it cannot search."""
    advice: str = ""
    """Told after the knowledge: what to avoid in a further attempt."""
    guidance: str = ""
    """Told so that it can be cut out of the prompt again (`prompting.opening_messages`): what was wrong before."""


class Executor(Protocol):
    """Does episodes in other processes. What an episode comes to is the same wherever it is done."""

    async def episode(
        self, environment: Environment, policy: Policy, attempt: Attempt, acting: RolloutConfig
    ) -> Trajectory:
        """Return what `rollout` returns. Raises what it raises."""
        ...


@dataclass
class _Progress:
    """What has happened in an episode so far."""

    started: Started | None = None
    opening: str = ""
    messages: list[Message] = field(default_factory=lambda: [])
    steps: list[Step] = field(default_factory=lambda: [])
    stop: StopReason = StopReason.MAX_STEPS
    error: str | None = None
    forgotten: int = 0
    given: int = 0
    """Steps beyond `max_steps`, given by the teacher."""
    advised: bool = False
    """Whether the teacher was asked about an action that failed."""
    found: list[Injection] = field(default_factory=lambda: [])
    """What the agent's searches brought."""
    waited: float = 0.0
    """Seconds until the latest reply was there."""


@watched("episode")
async def rollout(environment: Environment, policy: Policy, attempt: Attempt, acting: RolloutConfig) -> Trajectory:
    """Return the graded trajectory of one attempt.

    Raises `PolicyUnavailable` and `BudgetExceeded`, and `PolicyRefused` when the first request is refused.
    """
    if acting.executor is not None:
        return await acting.executor.episode(environment, policy, attempt, acting)
    async with slot(environment):
        return await _rollout(environment, policy, attempt, acting)


async def _rollout(environment: Environment, policy: Policy, attempt: Attempt, acting: RolloutConfig) -> Trajectory:
    started = time.perf_counter()
    progress = _Progress()
    outcome: Outcome | None = None
    acting = replace(acting, skills=acting.skills and attempt.arm != NO_MEMORY)
    try:
        progress.started = await start(environment, attempt.task, seed_for(attempt.seed, "world"), attempt.skills)
        episode = progress.started.episode
        try:
            progress.opening, _ = shortened(progress.started.opening, acting.observation_chars)
            progress.messages = _opening(attempt, progress, policy, acting)
            await _act(environment, episode, policy, attempt, acting, progress)
            outcome = None if progress.error else await episode.grade()
        except BaseException:
            with suppress(EnvironmentFailure):  # what ended the episode counts, not that it cannot be closed either
                await episode.close()
            raise
        await episode.close()
    except EnvironmentFailure as failure:
        outcome = None
        progress.stop, progress.error = StopReason.ERROR, f"{type(failure).__name__}: {failure}"
    return Trajectory(
        id=attempt.id,
        task=attempt.task,
        opening=progress.opening,
        tools=_own_tools(environment, attempt.task),
        steps=tuple(progress.steps),
        outcome=outcome,
        stop=progress.stop,
        error=progress.error,
        injected=_shown(attempt, progress),
        forgotten=progress.forgotten,
        prelude=progress.started.source if progress.started else "",
        prelude_error=progress.started.error if progress.started else None,
        snapshot_id=attempt.snapshot_id,
        run_id=attempt.run_id,
        arm=attempt.arm,
        policy=policy.name,
        policy_version=policy.version,
        seed=attempt.seed,
        usage=sum((step.usage for step in progress.steps), Usage()),
        seconds=time.perf_counter() - started,
    )


def _own_tools(environment: Environment, task: Task) -> tuple[str, ...]:
    """Return the names of the tools that a task offers itself; empty where the environment offers all to each."""
    return tuple(tool.name for tool in tools_of(environment, task)) if isinstance(environment, HasTaskTools) else ()


def _opening(attempt: Attempt, progress: _Progress, policy: Policy, acting: RolloutConfig) -> list[Message]:
    rules = knowledge(attempt.core, attempt.recalled, policy.profile)
    rules = "\n".join(filter(None, (rules, attempt.advice)))
    given = progress.started.skills if progress.started else ()
    skills = SkillList(neutral(catalogue(given, policy.profile)), acting.saves) if acting.skills else None
    task = attempt.task.opened(progress.opening)
    world = acting.world + (attempt.search.told if attempt.search is not None else "")
    opening = opening_messages(task, rules, policy.profile, world, skills, attempt.guidance)
    return with_examples(opening, attempt.exemplars, acting.demonstration)


async def _act(
    environment: Environment,
    episode: Episode,
    policy: Policy,
    attempt: Attempt,
    acting: RolloutConfig,
    progress: _Progress,
) -> None:
    """Let policy and environment take turns until one of them is done or the steps are used up."""
    tools, opening = tools_of(environment, attempt.task), len(progress.messages)
    while (left := acting.max_steps + progress.given - len(progress.steps)) > 0:
        progress.forgotten += forget_oldest(progress.messages, opening, acting.history_chars)
        params = SamplingParams(
            temperature=acting.temperature,
            top_p=acting.top_p,
            max_tokens=acting.max_tokens,
            stop=stop_of(environment),
            seed=seed_for(attempt.seed, len(progress.steps)),
            tools=tools,
        )
        asked_at = time.perf_counter()
        try:
            reply = await policy.generate(progress.messages, params)
            progress.waited = time.perf_counter() - asked_at
        except (PolicyUnavailable, BudgetExceeded):
            raise
        except PolicyError as error:
            if isinstance(error, PolicyRefused) and not progress.steps:
                raise
            progress.stop, progress.error = StopReason.ERROR, f"{type(error).__name__}: {error}"
            return
        if acting.teacher and acting.teacher.plan and not progress.steps:
            await _planned(acting.teacher, attempt.task, reply, progress)
            continue
        if attempt.search is not None and (query := asked(reply.text)):
            _search(attempt.search, query, reply, progress)
            continue
        if acting.skills and policy.profile == "full" and (wish := skill_asked(reply.text)):
            shown = progress.started.skills if progress.started else ()
            _record(progress, skill_answered(wish, reply, attempt.task, progress.steps, shown, acting.described), reply)
            continue
        actions = actions_of(reply, environment.action_format, policy.profile)[:left]
        if stop := await _perform(episode, reply, actions, acting, progress, policy.profile):
            progress.stop = stop
            return
        if acting.teacher and acting.teacher.retry and not progress.advised and progress.steps[-1].error:
            await _advised(acting.teacher, attempt.task, progress)


async def _planned(teacher: Teacher, task: Task, reply: Reply, progress: _Progress) -> None:
    """Let the teacher answer a plan: a step that the world never sees and that does not count."""
    said, usage = await teacher.review(task.opened(progress.opening), reply.text)
    step = Step(index=0, action=PLAN, reply=reply.text, observation=said, usage=reply.usage + usage)
    _record(progress, step, reply)
    progress.given += 1


async def _advised(teacher: Teacher, task: Task, progress: _Progress) -> None:
    """Put the teacher's advice under the error of the last step, and give that step back where there is any."""
    progress.advised = True
    said, usage = await teacher.advise(task.opened(progress.opening), progress.steps)
    step, seen = progress.steps[-1], progress.messages[-1]
    text = f"{step.observation}\n{said}" if said else step.observation
    progress.steps[-1] = step.model_copy(update={"observation": text, "usage": step.usage + usage})
    progress.messages[-1] = seen.model_copy(update={"content": text})
    progress.given += bool(said)


def _search(search: Search, query: str, reply: Reply, progress: _Progress) -> None:
    """Answer a search: a step like any other, that the world never sees."""
    found = search(query)
    action = f"{SEARCH}({query!r})"
    _record(progress, Step(index=0, action=action, reply=reply.text, observation=found.text, usage=reply.usage), reply)
    progress.found += found.injected


def _shown(attempt: Attempt, progress: _Progress) -> tuple[Injection, ...]:
    """Return what was shown from the start, without skills that were left out, and what was found later, each once."""
    given = {record.id for record in progress.started.skills} if progress.started else set[str]()
    left_out = {record.id for record in attempt.skills} - given
    known = {item.record_id for item in attempt.injected}
    found = {item.record_id: item for item in progress.found if item.record_id not in known}
    return (*(item for item in attempt.injected if item.record_id not in left_out), *found.values())


async def _perform(
    episode: Episode,
    reply: Reply,
    actions: Sequence[Action],
    acting: RolloutConfig,
    progress: _Progress,
    profile: Profile,
) -> StopReason | None:
    """Do what one reply asks for, step by step; return why the episode is over, where it is.

    The first step bears the usage.
    """
    if not actions:
        step = Step(index=0, action="", reply=reply.text, observation=NO_CODE, error=NO_CODE, usage=reply.usage)
        _record(progress, step, reply)
        return StopReason.FORMAT if acting.require_code else None
    for at, action in enumerate(actions):
        started = time.perf_counter()
        result = await _step(episode, action, len(progress.steps))
        text = call_text(action.tool_calls[0]) if action.tool_calls else action.text
        seen = answered(text, result, progress.steps, profile)
        observation, omitted = shortened(seen, acting.observation_chars)
        step = Step(
            index=0,
            action=text,
            reply=reply.text if reply.text != text else "",
            observation=observation,
            error=shortened(result.error, acting.observation_chars)[0] if result.error else result.error,
            omitted=omitted,
            tool_calls=action.tool_calls,
            usage=Usage() if at else reply.usage,
            seconds=time.perf_counter() - started,
        )
        _record(progress, step, None if at else reply)
        if result.done:
            return StopReason.DONE
    return None


@watched("step")
async def _step(episode: Episode, action: Action, index: int) -> StepResult:
    """Do one action; `index` counts the steps before it."""
    return await episode.step(action)


def _record(progress: _Progress, step: Step, reply: Reply | None) -> None:
    """Take in a step; `reply` is the one that it began with."""
    update = {"index": len(progress.steps)}
    if reply:
        update |= {"reply_key": reply.key, "reply_seconds": progress.waited}
    progress.steps.append(step.model_copy(update=update))
    progress.messages += step_messages(progress.steps[-1], reply)


def call_text(call: ToolCall) -> str:
    """Return a native tool call as it would be written in code, for readers of the trajectory."""
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
