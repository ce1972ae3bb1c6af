"""Lives of a real model in a world of others: it learns online, then works through held-out tasks, arm by arm.

A life is a folder that stays. What was killed goes on, and what is done is not done again, so that hours of a small
machine may be spread over days.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.real.models import gguf
from evolve.config.model import Config
from evolve.episode.prompting import actions_of
from evolve.loop.assembly import make_environment, make_policy, open_store
from evolve.loop.history import list_runs
from evolve.loop.report import Report, make_report
from evolve.loop.session import resume, run
from evolve.progress import Observer
from evolve.seeds import id_for
from memory.errors import BadInput
from memory.records import Frozen, Task
from memory.runlist import RunFilter
from policies.llama_server import LlamaOptions, llama_server
from policies.protocols import Message, Policy, SamplingParams

SLOTS, CONTEXT = 4, 4096
HELD_OUT = "test_normal"
MAX_TOKENS = 320
"""Most tokens of a reply, for every arm."""
DATA = "EVOLVE_TEST_DATA"


def data(name: str) -> str:
    """Return the path of a file of others. Raises `BadInput` where it is not."""
    folder = os.environ.get(DATA)
    if not folder or not (Path(folder) / name).is_file():
        raise BadInput(f"{name} is not in the folder that {DATA} names ({folder!r}); set it to where the files are")
    return str(Path(folder) / name)


@contextmanager
def served(name: str, **options: int) -> Generator[str]:
    """Serve a fetched model through llama.cpp, with these fields of `LlamaOptions`; yield the base URL."""
    with tempfile.TemporaryDirectory(prefix="evolve-served-") as folder:
        chosen = LlamaOptions.model_validate({"slots": SLOTS, "context": CONTEXT, **options})
        with llama_server(gguf(name), log=Path(folder) / "llama.log", name=name, options=chosen) as url:
            yield url


@dataclass(frozen=True)
class Life:
    """One workspace: who acts where, and what it does with what happens."""

    root: Path
    url: str
    model: str
    environment: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    observers: tuple[Observer, ...] = ()

    def config(self, name: str, **changes: Mapping[str, Any]) -> Config:
        """Return the configuration of a run of this life."""
        self.root.mkdir(parents=True, exist_ok=True)
        given: dict[str, dict[str, Any]] = {
            "run": {"name": name, "concurrency": SLOTS},
            "policy": {"name": "openai", "base_url": self.url, "model": self.model, "max_tokens": MAX_TOKENS},
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
        kept = self.root / "bare"
        kept.mkdir(exist_ok=True)
        environment, policy = make_environment(config), make_policy(config.policy)
        limit = asyncio.Semaphore(SLOTS)

        async def ask(task: Task) -> bool:
            file = kept / f"{id_for('bare', task.id)}.json"
            if not file.exists():
                async with limit:
                    file.write_text((await _asked_once(environment, policy, task)).model_dump_json(indent=2))
            return Asked.model_validate_json(file.read_text()).success

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
            run_id = run(config, observers=self.observers).run_id
        elif earlier[0].status == "done":
            run_id = earlier[0].run_id
        else:
            run_id = resume(config, earlier[0].run_id, observers=self.observers).run_id
        with open_store(config, read_only=True) as store:
            return make_report(store, run_id)


class Asked(Frozen):
    """What came of one question without a framework."""

    task: str
    reply: str
    success: bool


async def _asked_once(environment: Any, policy: Policy, task: Task) -> Asked:
    """Put the world's own description and the task into one message; the first action decides."""
    asked = f"{environment.describe('full')}\n\n{task.instruction}"
    reply = await policy.generate([Message(role="user", content=asked)], SamplingParams(max_tokens=MAX_TOKENS))
    episode = environment.start(task)
    try:
        for action in actions_of(reply, environment.action_format, "full"):
            await episode.step(action)
        return Asked(task=task.id, reply=reply.text, success=(await episode.grade()).success)
    finally:
        await episode.close()


def _merged(changes: Mapping[str, Mapping[str, Any]], **more: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {**changes, **{name: {**keys, **changes.get(name, {})} for name, keys in more.items()}}
