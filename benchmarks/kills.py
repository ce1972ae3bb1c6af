"""Kills online runs at random moments and resumes them, until each is done; counts what a kill lost or repeated.

A third of the kills falls at a random time, a third at a random SQL statement, a third at a random statement inside a
transaction. Until the process dies, another connection reads what it has committed: every event seen there must stand
in the journal afterwards, unchanged. After each kill the workspace is opened (for writing, or only for reading, in
turns), examined by the doctor, and the replies in it are compared with the calls that were made.
"""

from __future__ import annotations

import itertools
import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benchmarks.lives import CALLS, DEATH, STATEMENTS, Death, configured, live
from benchmarks.outcomes import outcome, outcome_of
from evolve.config.model import Config
from evolve.loop.assembly import open_store
from evolve.loop.runs import DONE
from memory.errors import EvolveError
from memory.journal import Journal

DEPLOYMENTS = 3
INDEXES = ("exact", "chroma")
POLL_S = 0.005
EVENTS = "SELECT seq, type, namespace, run_id, subject, meta, content, created_at FROM events WHERE seq > ?"
_REPLIES = "SELECT c.body FROM replies r JOIN content c ON c.hash = r.hash"

processes: Any = get_context("forkserver")
"""Children start in milliseconds: their server has imported everything already, and holds no thread."""
processes.set_forkserver_preload(["benchmarks.lives", "evolve.loop.graph", "chromadb"])

Events = dict[int, tuple[Any, ...]]
NEVER = float("inf")
Plan = tuple[float, Death]
"""Seconds until the parent kills, and the statement at which the child dies by itself."""


@dataclass
class Toll:
    """What all the kills came to."""

    kills: int = 0
    in_transaction: int = 0
    events: int = 0
    """Events in the journals at the end; each was looked for after every kill that followed it."""
    lost: int = 0
    unopened: list[str] = field(default_factory=list[str])
    findings: list[str] = field(default_factory=list[str])
    calls: int = 0
    repeated: int = 0
    unjournalled: int = 0
    """Calls whose reply the kill caught on its way to the journal: they are made again, and no claim forbids it."""
    runs: int = 0
    different: int = 0
    stuck: list[str] = field(default_factory=list[str])
    """Runs that ended by an error instead of a kill."""


@dataclass(frozen=True)
class Straight:
    """One deployment's run without a kill."""

    outcome: dict[str, Any]
    seconds: float
    statements: int
    inside: int
    """Statements inside a transaction."""


def kill_runs(root: Path, kills: int, tasks: int, seed: int, *, skills: bool = False) -> Toll:
    """Kill until there were `kills` of them, and let the last run finish. `skills`: of agents that work with them."""
    toll, rng = Toll(), random.Random(seed)
    first = [_prepared(root / f"straight-{at}", tasks, "exact", skills=skills) for at in range(DEPLOYMENTS)]
    straight = [_straight(config, deployment) for deployment, config in enumerate(first)]
    for number in itertools.count():
        deployment = number % DEPLOYMENTS
        config = _prepared(root / f"run-{number}", tasks, INDEXES[number % 2], skills=skills)
        _one_run(config, deployment, straight[deployment], toll, _plans(straight[deployment], kills, toll, rng))
        if toll.kills >= kills or toll.stuck:
            return toll
    raise AssertionError("unreachable")


def _straight(config: Config, deployment: int) -> Straight:
    folder = config.root
    started = time.monotonic()
    child = _start(config, deployment, again=False, death=Death(None))
    child.join()
    if child.exitcode:
        raise RuntimeError((folder / "output.txt").read_text())
    seconds = time.monotonic() - started
    statements, inside = map(int, (folder / STATEMENTS).read_text().split())
    return Straight(outcome_of(config), seconds, statements, inside)


def _prepared(folder: Path, tasks: int, index: str, *, skills: bool) -> Config:
    folder.mkdir(parents=True)
    return configured(folder, tasks, index, skills=skills)


def _start(config: Config, deployment: int, *, again: bool, death: Death) -> BaseProcess:
    more = {"again": again, "death": death}
    child: BaseProcess = processes.Process(target=live, args=(config, deployment), kwargs=more)
    child.start()
    return child


def _plans(straight: Straight, kills: int, toll: Toll, rng: random.Random) -> Iterator[Plan]:
    """Yield plans of kills; plans without one when enough were killed."""
    while toll.kills < kills:
        how = rng.randrange(3)
        if how == 0:
            yield rng.uniform(0, straight.seconds), Death(None)
        elif how == 1:
            yield NEVER, Death(rng.randint(1, straight.statements))
        else:
            yield NEVER, Death(rng.randint(1, straight.inside), inside=True)
    while True:
        yield NEVER, Death(None)


def _one_run(config: Config, deployment: int, straight: Straight, toll: Toll, plans: Iterator[Plan]) -> None:
    """Kill and resume one run until it is done."""
    toll.runs += 1
    known: Events = {}
    journalled: Counter[str] = Counter()
    seen_calls, again = 0, False
    for seconds, death in plans:
        child = _start(config, deployment, again=again, death=death)
        _watch(config.workspace / "evolve.db", child, seconds, known)
        killed, calls = child.exitcode == -9, _calls(config.root)
        if not killed and child.exitcode:
            toll.stuck.append((config.root / "output.txt").read_text()[-2000:])
            return
        made = Counter(calls[seen_calls:])
        toll.calls += made.total()
        toll.repeated += sum(made[call] for call in made if journalled[call]) + sum(made.values()) - len(made)
        seen_calls = len(calls)
        if killed:
            toll.kills += 1
            toll.in_transaction += _died_in_transaction(config.root)
        try:
            done, again = _examine(config, known, journalled, toll)
        except EvolveError as error:
            toll.unopened.append(f"{type(error).__name__}: {error}")
            return
        toll.unjournalled += len(set(made) - set(journalled))
        if done is not None:
            toll.events += len(known)
            toll.different += done != straight.outcome
            return


def _watch(database: Path, child: BaseProcess, seconds: float, known: Events) -> None:
    """Read what the child commits into `known` until it ends, or kill it when its time has come."""
    deadline = time.monotonic() + seconds
    connection: sqlite3.Connection | None = None
    try:
        while child.is_alive():
            if connection is None and database.exists():
                connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)
            if connection is not None:
                _witness(connection, known)
            if time.monotonic() >= deadline:
                child.kill()
                break
            child.join(POLL_S)
    finally:
        child.join()
        if connection is not None:
            connection.close()


def _witness(connection: sqlite3.Connection, known: Events) -> None:
    try:
        rows = connection.execute(EVENTS, (max(known, default=0),)).fetchall()
    except sqlite3.OperationalError:
        return  # the tables are being made
    known.update((row[0], row[1:]) for row in rows)


def _examine(config: Config, known: Events, journalled: Counter[str], toll: Toll) -> tuple[dict[str, Any] | None, bool]:
    """Open the workspace; return (outcome of a run that is done, whether there is a run to resume)."""
    if not (config.workspace / "evolve.db").exists():
        toll.lost += len(known)
        return None, False
    with open_store(config, read_only=bool(toll.kills % 2 and known)) as store:
        now: Events = {row[0]: row[1:] for row in store.journal.query(EVENTS, (0,))}
        toll.lost += sum(now.get(seq) != event for seq, event in known.items())
        known.update(now)
        toll.findings += [f"{item.code}: {item.message}" for item in store.doctor() if item.level != "info"]
        journalled.clear()
        journalled.update(requests(store.journal))
        runs = store.runs()
        done = bool(runs) and runs[-1]["status"] == DONE
        return (outcome(store) if done else None), bool(runs)


def requests(journal: Journal) -> Iterator[str]:
    """Yield the digest of the request of each journalled reply."""
    for (body,) in journal.query(_REPLIES):
        yield bytes(json.loads(body)["reply"]["prompt_token_ids"]).hex()


def _calls(folder: Path) -> list[str]:
    """Return the digests of all calls made so far in a workspace."""
    return (folder / CALLS).read_text().split() if (folder / CALLS).exists() else []


def _died_in_transaction(folder: Path) -> bool:
    """Tell whether the child killed itself at a statement inside a transaction, and forget the note."""
    if not (folder / DEATH).exists():
        return False
    inside = (folder / DEATH).read_text().startswith("1")
    (folder / DEATH).unlink()
    return inside
