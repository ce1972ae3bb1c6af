"""Processes of claim loop_3: an online run that may be killed at any statement, a writer of deltas.

The functions are the targets of `multiprocessing` processes; what they have to say they write to files.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, resume, run
from memory.records import DeltaOp, Op, UsageCounts
from policies.protocols import Message, Reply, SamplingParams
from policies.scripted import ScriptedPolicy
from policies.wrapped import WrappedPolicy

LATENCY_S = 0.01
CALLS, DEATH, STATEMENTS, OUTPUT = "calls.txt", "death.txt", "statements.txt", "output.txt"


class Noted(WrappedPolicy):
    """A scripted policy, each of whose calls is on disk before it is made, and whose replies name their request."""

    def __init__(self, policy: ScriptedPolicy, file: Path) -> None:
        super().__init__(policy)
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Note the call, then make it. The digest of the request stands in for the ids of its prompt's tokens."""
        request = json.dumps([[message.content for message in messages], params.seed])
        digest = hashlib.sha256(request.encode())
        os.write(self._file, f"{digest.hexdigest()}\n".encode())
        os.fsync(self._file)
        reply = await super().generate(messages, params)
        return reply.model_copy(update={"prompt_token_ids": tuple(digest.digest())})


def configured(folder: Path, tasks: int, index: str, *, skills: bool = False) -> Config:
    """Return the configuration of one small online run in `folder`."""
    return Config.model_validate(
        {
            "root": folder,
            "run": {"tasks": tasks, "batch_size": 3, "concurrency": 3},
            "playbook": {"reflector": "rules", "curator": "direct", "compact_every": 6},
            "environment": {"name": "office", "max_steps": 16},
            "memory": {"index": index},
            "skills": {"enabled": skills},
            "controls": {"no_memory": 0.25},
        }
    )


@dataclass(frozen=True)
class Death:
    """At which SQL statement of a process it dies, counted over all its connections."""

    statement: int | None
    """None = it lives."""
    inside: bool = False
    """Count statements inside a transaction only."""


def live(config: Config, deployment: int, *, again: bool, death: Death) -> None:
    """Start the run, or resume it; die by SIGKILL when `death` comes. A run that ends notes its count of statements."""
    folder = config.root
    output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    trace(folder, death, statements := Counter[bool]())
    office = Office(OfficeConfig(deployment=deployment))
    parts = Parts(policy=Noted(make_worker(office, LATENCY_S), folder / CALLS), environment=office)
    (resume if again else run)(config, parts=parts)
    (folder / STATEMENTS).write_text(f"{statements.total()} {statements[True]}")


def trace(folder: Path, death: Death, statements: Counter[bool]) -> None:
    """Count the statements of all connections that are opened from now on: inside a transaction (True), and outside."""
    connect = sqlite3.connect

    def traced(*arguments: Any, **more: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **more)

        def statement(sql: str) -> None:
            inside = connection.in_transaction
            statements[inside] += 1
            count = statements[True] if death.inside else statements.total()
            if count == death.statement and (inside or not death.inside):
                (folder / DEATH).write_text(f"{int(inside)} {sql}")
                os.kill(os.getpid(), signal.SIGKILL)

        connection.set_trace_callback(statement)
        return connection

    sqlite3.connect = traced


def proposed(shared: str, version: int, name: str, turn: int) -> DeltaOp:
    """Return the delta of one turn of a writer: a new bullet, a count on the shared one, or an edit of it."""
    about: dict[str, Any] = {"op_id": f"{name}/{turn}"}
    if turn % 3 == 0:
        return DeltaOp(op=Op.ADD, payload={"content": f"{name} saw {turn}"}, **about)
    if turn % 3 == 1:
        return DeltaOp(op=Op.TAG, target_id=shared, usage=UsageCounts(helpful=1), **about)
    text = {"content": f"{name} wrote {turn}"}
    return DeltaOp(op=Op.EDIT, target_id=shared, payload=text, base_version=version, **about)


def write(config: Config, shared: str, name: str, turns: int, *, owner: bool) -> None:
    """Commit `turns` deltas one by one; after each, append `[op_id, op, applied, reason]` to the writer's file."""
    with open_store(config, owner=owner) as store, (config.root / f"{name}.jsonl").open("w") as file:
        for turn in range(turns):
            known = store.get(shared)
            op = proposed(shared, known.version if known else 0, name, turn)
            (result,) = store.commit("default", [op], actor=name).results
            file.write(json.dumps([op.op_id, op.op, result.applied, result.reason]) + "\n")
            file.flush()
