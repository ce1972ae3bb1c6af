"""Counts what a run moves: SQL statements, reads and parses of trajectories and deltas, wall time a task.

    python benchmarks/flow.py [FOLDER]

Sixteen tasks of the office by the scripted worker and the reflector of rules, with a gate of its own that runs nine
episodes: the work is the same in every commit, and the counts of a commit are always the same. It prints JSON. The
folder is a checkout of this project, of this commit or of the audited one; its packages are the ones that run.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

STATEMENTS, CHECKPOINTS, TEXTS = "SQL statements", "SQL statements of checkpoints", "texts of statements"
READS, PARSES, DELTAS = "trajectory reads", "trajectory parses", "delta parses"
COUNTED = (STATEMENTS, READS, PARSES, DELTAS)
TASKS = 16


class Nine:
    """A gate that runs nine episodes for the first change it is asked about, and lets everything through."""

    name = "nine"

    def __init__(self, evaluator: Any, tasks: Sequence[Any], verdict: type) -> None:
        self._evaluator, self._tasks, self._verdict = evaluator, tasks, verdict
        self._asked = False

    async def judge(self, ops: Sequence[Any], view: Any, trajectories: Sequence[Any]) -> Any:
        if not self._asked:
            self._asked = True
            await self._evaluator(None, self._tasks[:4], 0)
            await self._evaluator(ops, self._tasks[:5], 0)
        return self._verdict(gate=self.name, accepted=tuple(op.op_id for op in ops))


class Counts:
    """What was counted, by what it is and who asked for it: the nearest frame in `evolve/`, else `memory/`."""

    def __init__(self, root: Path) -> None:
        self.by: dict[str, Counter[str]] = {name: Counter() for name in (*COUNTED, CHECKPOINTS, TEXTS)}
        self._root = str(root)

    def take(self, what: str) -> None:
        """Take one of something."""
        self.by[what][self._caller()] += 1

    def statement(self, file: str, text: str) -> None:
        """Take one statement; what a trigger does comes as a comment and is none."""
        if file.endswith("checkpoints.db"):
            self.take(CHECKPOINTS)
        elif file.endswith("evolve.db") and not text.startswith("--"):
            self.take(STATEMENTS)
            self.by[TEXTS][" ".join(text.split())[:60]] += 1

    def _caller(self) -> str:
        frame, inner = sys._getframe(2), ""  # pyright: ignore[reportPrivateUsage] - documented
        while frame is not None:
            file = frame.f_code.co_filename.removeprefix(f"{self._root}/")
            if file.startswith("evolve/"):
                return f"{file}:{frame.f_code.co_name}"
            if file.startswith(("memory/", "playbooks/")):
                inner = f"{file}:{frame.f_code.co_name}"
            frame = frame.f_back
        return inner


def watch(counts: Counts) -> None:
    """Count from now on, in this process: nothing of the product knows of it."""
    _watch_sql(counts)
    records, store = import_module("memory.records"), import_module("memory.store")
    for name in ("trajectory", "trajectories"):
        _wrap(store.Store, name, lambda *_, **__: counts.take(READS))
    pydantic = import_module("pydantic").BaseModel
    waiting = _either("evolve.loop.nodes.waiting", "evolve.nodes.waiting").Waiting
    for model, what in ((records.Trajectory, PARSES), (records.DeltaOp, DELTAS), (waiting, DELTAS)):
        for name in ("model_validate", "model_validate_json"):
            _watch_parse(model, name, getattr(pydantic, name).__func__, counts, what)


def _watch_sql(counts: Counts) -> None:
    connect = sqlite3.connect

    def traced(database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(database, *arguments, **options)
        connection.set_trace_callback(lambda text: counts.statement(str(database).partition("?")[0], text))
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]


def _wrap(owner: type, name: str, seen: Callable[..., None]) -> None:
    plain = getattr(owner, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        seen(*arguments, **options)
        return plain(*arguments, **options)

    setattr(owner, name, counted)


def _watch_parse(model: type, name: str, plain: Callable[..., Any], counts: Counts, what: str) -> None:
    def counted(cls: type, *arguments: Any, **options: Any) -> Any:
        counts.take(what)
        return plain(cls, *arguments, **options)

    setattr(model, name, classmethod(counted))


def _give_gate(assembly: Any) -> None:
    """Let runs have gate `static` and the gate of nine episodes."""
    plain, verdict = assembly.make_gates, import_module("memory.records").Verdict

    def given(config: Any, bench: Any, own: Any = None) -> tuple[Any, ...]:
        tasks = bench.evaluator.environment.tasks("dev")
        return (*plain(config, bench, own), Nine(bench.evaluator, tasks, verdict))

    assembly.make_gates = given


def _either(name: str, audited: str) -> Any:
    """Return a module under its name of today, or under that of the audited commit."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return import_module(audited)


def play(tasks: int) -> tuple[float, dict[str, int]]:
    """Run so many tasks in a workspace of their own; return the seconds it took, and what the journal holds then."""
    office_of = import_module("evolve.environments.office.environment")
    make_worker = import_module("evolve.environments.office.worker").make_worker
    config_of = _either("evolve.config.model", "evolve.config").Config
    session = _either("evolve.loop.session", "evolve.session")
    office = office_of.Office(office_of.OfficeConfig(deployment=900))
    with tempfile.TemporaryDirectory() as folder:
        config = config_of.model_validate(
            {
                "root": folder,
                "run": {"tasks": tasks},
                "memory": {"index": "exact"},
                "policy": {"name": "pocket"},
                "controls": {"no_memory": 0},
                "gate": {"names": ("static",)},
                "playbook": {"reflector": "rules", "curator": "direct"},
            }
        )
        parts = session.Parts(policy=make_worker(office), environment=office)
        started = time.perf_counter()
        session.run(config, parts=parts)
        seconds = time.perf_counter() - started
        return seconds, _held(next(Path(folder).rglob("evolve.db")))


def _held(database: Path) -> dict[str, int]:
    questions = {
        "episodes": "trajectories WHERE arm = 'main'",
        "gate episodes": "trajectories WHERE arm = 'gate'",
        "replies": "replies",
        "records": "records",
    }
    with closing(sqlite3.connect(database)) as db:
        return {what: db.execute(f"SELECT count(*) FROM {rows}").fetchone()[0] for what, rows in questions.items()}


def measure(root: Path, tasks: int = TASKS, rounds: int = 5) -> dict[str, Any]:
    """Return what a run of the packages at `root` counted, by caller, what it did, and its milliseconds a task.

    Those are the median of some rounds before anything is counted, after one that bears the start.
    """
    _give_gate(_either("evolve.loop.assembly", "evolve.app"))
    seconds = [play(tasks)[0] for _ in range(rounds + 1)][1:]
    counts = Counts(root)
    watch(counts)
    _, held = play(tasks)
    by = {name: dict(found.most_common()) for name, found in counts.by.items()}
    return {"by": by, "held": held, "ms a task": 1e3 * statistics.median(seconds) / tasks}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=".", type=Path)
    parser.add_argument("--rounds", type=int, default=5, help="runs that are timed")
    asked = parser.parse_args()
    tree = asked.folder.resolve()
    sys.path.insert(0, str(tree))
    print(json.dumps(measure(tree, rounds=asked.rounds)))
