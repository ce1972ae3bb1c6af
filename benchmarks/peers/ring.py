"""Puts every arm through the same: the same server, train tasks in the same order, held-out tasks, and grader.

What an arm came to is a cell, a file that may stand in the repository: all arms together take longer than one sitting,
and the next one may be on another machine. Until then an arm is a folder: `adapted.json` says that adapting is done,
`answers/` holds one file for each held-out task, `calls-*.jsonl` what was asked and answered. An arm that was killed
begins anew and is told what it was told before, from those files: no peer has to know how to go on. One whose course
depends on timing would ask something else, and keeps `state.json` (kayba) or `life/` (ours). `unfinished` packs what
another machine needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.peers import install
from benchmarks.peers.counting import Calls, CountingProxy, machine, read_calls
from benchmarks.peers.grading import Grade, grade, grade_generously, right_answer
from benchmarks.peers.unfinished import unpack
from evolve.protocols import Environment
from memory.errors import BadInput, EvolveError
from memory.records import Frozen, Task

BARE, TOLD = "bare", "told"
ADAPT, ANSWER, AGAIN = "adapt", "answer", "again"
STATE, LIFE = "state.json", "life"
"""Of an arm that knows by itself where it was."""
QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1",
    "PYTHONUNBUFFERED": "1",
}
"""What a peer's process is told: it sends nothing anywhere but to the server, and fetches nothing."""
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "TIKTOKEN_CACHE_DIR", "OMP_NUM_THREADS")
"""What it sees of our own environment: no key, no path of our packages."""


Grader = Callable[[Environment, Task, str], Awaitable[Grade]]


class PeerFailed(EvolveError, RuntimeError):
    """A peer's runner ended badly; its log says why."""


class Result(Frozen):
    """What an arm came to."""

    arm: str
    passed: dict[str, bool]
    """Held-out task -> whether the environment accepted the answer."""
    generous: dict[str, bool] = Field(default_factory=dict[str, bool])
    """The same where a reply without code is read as the last number in it (arms that answer once)."""
    again: dict[str, bool] = Field(default_factory=dict[str, bool])
    """The same once more, where it was asked (A/A)."""
    learned: int = 0
    """What was kept of adapting: rules, skills, exemplars, or 1 for a changed prompt."""
    errors: int = 0
    """Held-out tasks where the framework raised instead of answering."""
    adapt: Calls = Calls()
    answer: Calls = Calls()
    commit: str = ""
    """Source that it was measured on."""
    machine: str = ""
    """Processor and cores that it adapted on: times of two kinds of machine are not compared."""


@dataclass(frozen=True)
class Ring:
    """What is the same for every arm."""

    home: Path
    environment: Environment
    proxy: CountingProxy
    grader: str
    """URL; it knows `train` and `validation`."""
    model: str
    train: Sequence[Task]
    validation: Sequence[Task]
    held_out: Sequence[Task]
    max_tokens: int = 320
    context: int = 8192
    seed: int = 0
    cells: Path | None = None
    """Folder of the results; None = `home`."""
    commit: str = ""

    def kept(self, arm: str, work: Callable[[Path], Result]) -> Result:
        """Return the result of an arm, from its cell where it is done. Raises `BadInput` for one of other tasks."""
        file = self.cell(arm)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._begin(arm)
            found = work(self.home / arm)
            where = " and ".join(found.adapt.machines or found.answer.machines) or machine()
            found = found.model_copy(update={"commit": self.commit, "machine": where})
            _write(file, found.model_dump_json(indent=1) + "\n")
        result = Result.model_validate_json(file.read_text())
        if set(result.passed) != {task.id for task in self.held_out}:
            raise BadInput(f"{file} answers other tasks than the {len(self.held_out)} held-out ones; move it away")
        return result

    def cell(self, arm: str) -> Path:
        """Return the file with the result of an arm, once it has one."""
        return (self.cells or self.home) / f"{arm}-{self.seed}.json"

    def _begin(self, arm: str) -> None:
        """Leave in the folder of an arm what it may go on from, of this machine or another one."""
        folder = self.home / arm
        folder.mkdir(parents=True, exist_ok=True)
        for each in folder.iterdir():
            if each.is_dir() and each.name != LIFE:
                shutil.rmtree(each)
            elif each.is_file() and each.name != STATE and not each.match("calls-*.jsonl"):
                each.unlink()
        if self.cells:
            unpack(self.cells, arm, self.seed, folder)

    def sitting(self, arm: str, phase: str) -> AbstractContextManager[str]:
        """Begin a phase of an arm, or go on with it; give the server's URL for it."""
        folder = self.home / arm
        known = (folder / LIFE).exists() or (phase == ADAPT and (folder / STATE).exists())
        return self.proxy.sitting(arm, phase, goes_on=known)

    def used(self, arm: str, phase: str) -> Calls:
        """Return what a phase of an arm used."""
        return read_calls(self.home, arm, phase)


def bare(ring: Ring, arm: str = BARE) -> Result:
    """Return what the model solves when it is asked once, without any framework, by the runner of that name."""
    return ring.kept(arm, lambda folder: _drive(ring, arm, sys.executable, {}))


def peer(ring: Ring, name: str) -> Result:
    """Let a peer adapt and answer, or read what it came to.

    Raises `BadInput` where it would have to run and cannot run here, `PeerFailed` when it broke down.
    """
    return ring.kept(name, lambda folder: _drive_peer(ring, name))


def _drive_peer(ring: Ring, name: str) -> Result:
    found = install.find(name)
    python = str(install.python(found))
    options = {"checkout": str(Path(os.environ[found.checkout]).resolve())} if found.checkout else {}
    return _drive(ring, name, python, options)


def _drive(ring: Ring, arm: str, python: str, options: Mapping[str, str]) -> Result:
    """Run both phases of a runner, and grade the answers."""
    folder = ring.home / arm
    for phase in (ADAPT, ANSWER):
        _phase(ring, arm, python, phase, options)
    answers = _answers(folder)
    if unanswered := [task.id for task in ring.held_out if task.id not in answers]:
        raise PeerFailed(
            f"{arm} left {len(unanswered)} of {len(ring.held_out)} tasks unanswered, first {unanswered[0]!r}"
        )
    adapted = json.loads((folder / "adapted.json").read_text())
    return Result(
        arm=arm,
        passed=asyncio.run(_graded(ring, answers, grade)),
        generous=asyncio.run(_graded(ring, answers, grade_generously)),
        learned=adapted["learned"],
        errors=sum(bool(answers[task.id]["error"]) for task in ring.held_out),
        adapt=ring.used(arm, ADAPT),
        answer=ring.used(arm, ANSWER),
    )


async def _graded(ring: Ring, answers: Mapping[str, dict[str, str]], by: Grader) -> dict[str, bool]:
    return {task.id: (await by(ring.environment, task, answers[task.id]["reply"])).success for task in ring.held_out}


def _answers(folder: Path) -> dict[str, dict[str, str]]:
    found = [json.loads(file.read_text()) for file in sorted((folder / "answers").glob("*.json"))]
    return {answer["task"]: answer for answer in found}


def _phase(ring: Ring, arm: str, python: str, phase: str, options: Mapping[str, str]) -> None:
    """Run one phase in the peer's own Python. Raises `PeerFailed` with the end of what it printed."""
    folder = ring.home / arm
    with ring.sitting(arm, phase) as url:
        given = asyncio.run(_assignment(ring, arm, phase, url))
        file = folder / f"assignment-{phase}.json"
        _write(file, json.dumps({**given, "options": dict(options)}, indent=2))
        log = folder / f"{phase}.log"
        status = _run([python, str(install.RUNNERS / f"run_{arm}.py"), str(file)], folder, log)
    if status:
        end = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
        raise PeerFailed(f"{arm} ended phase {phase!r} with status {status}: {end[-600:]}; all of it is in {log}")


def _run(command: list[str], folder: Path, log: Path) -> int:
    """Run a process in a session of its own, which ends with this one's block, whatever happens."""
    seen = {name: os.environ[name] for name in KEPT if name in os.environ}
    with log.open("a") as out:
        process = subprocess.Popen(
            command, cwd=folder, env={**seen, **QUIET}, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


async def _assignment(ring: Ring, arm: str, phase: str, url: str) -> dict[str, Any]:
    """Return what a runner is told. Held-out tasks stand in the second phase alone, and without answers."""
    adapting = phase == ADAPT

    async def told(tasks: Sequence[Task], answers: bool) -> list[dict[str, str]]:
        return [
            {
                "id": task.id,
                "question": task.instruction,
                "answer": await right_answer(ring.environment, task) if answers else "",
            }
            for task in tasks
        ]

    return {
        "phase": phase,
        "folder": str((ring.home / arm).resolve()),
        "base_url": url,
        "model": ring.model,
        "max_tokens": ring.max_tokens,
        "context": ring.context,
        "seed": ring.seed,
        "description": ring.environment.describe("full"),
        "grader": ring.grader,
        "train": await told(ring.train if adapting else (), True),
        "validation": await told(ring.validation if adapting else (), True),
        "held_out": await told(() if adapting else ring.held_out, False),
    }


def _write(file: Path, text: str) -> None:
    half = file.with_name(file.name + ".half")
    half.write_text(text)
    half.replace(file)
