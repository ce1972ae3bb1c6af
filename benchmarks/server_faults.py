"""Breaks what a run on a server and a cluster stands on, at random moments, and goes on until it is done.

Killed are workers, nodes of the cluster, the run's own process, sessions of the server, the server; a worker is stopped
until the run notices and kills it; the network to the server hands on nothing for some seconds, or breaks all
connections and takes none. Until a run is done, a session of its own, which no fault reaches but that of the server,
reads what was committed: every event seen must stand in the journal at the end, unchanged. Every call of the model is
on disk before it is made; one that is made after its reply was seen in the journal is a call repeated.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from benchmarks.kills import EVENTS, Events, requests
from benchmarks.outcomes import outcome
from benchmarks.postgres_server import new_workspace, restart, running
from benchmarks.ray_cluster import NODE, started, workers
from benchmarks.table import ROOT
from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from evolve.loop.runs import DONE
from memory.errors import EvolveError
from memory.journal import Journal
from memory.store import Store

KINDS = ("worker", "hang", "node", "driver", "session", "server", "silence", "network")
DEPLOYMENT = 3
SOCKET = ".s.PGSQL.5432"
CUT_SECONDS = 5.0
POLL_SECONDS = 0.05
BETWEEN = (1.0, 4.0)
"""Seconds from one fault to the next."""
RELEASED_SECONDS = 20.0
"""How long sessions of workers that were killed may take to end."""
HANGS_SECONDS = 600.0
"""A command that has not ended by then hangs."""
ATTEMPTS = 3
"""Times in a row that a run may end by an error without a fault before it counts as stuck."""
MARK = "EVOLVE_SCALE_2"
"""Variable by which the processes of this cluster are told from those of others."""
CALLS, OUTPUT = "calls.txt", "output.txt"
_LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' OR "
    "pid IN (SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction')"
)
_OTHERS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'evolve' AND pid <> pg_backend_pid()"
SETTINGS = """
[run]
tasks = {tasks}
batch_size = 6
concurrency = 6
executor = "ray"

[environment]
name = "office"
deployment = {deployment}
max_steps = 16

[policy]
name = "benchmarks.server_lives:noted_worker"
model = "{deployment}:{calls}"

[memory]
index = "exact"
database = "{database}"

[playbook]
reflector = "rules"
curator = "direct"

[gate]
names = ["default"]
"""

T = TypeVar("T")


@dataclass
class Toll:
    """What all the faults came to."""

    faults: Counter[str] = field(default_factory=Counter[str])
    events: int = 0
    """Events in the journals at the end."""
    lost: int = 0
    findings: list[str] = field(default_factory=list[str])
    calls: int = 0
    repeated: int = 0
    anew: int = 0
    """Calls that were journalled whenever a run's process had ended: a start anew would have made them again."""
    runs: int = 0
    resumed: int = 0
    different: int = 0
    stuck: list[str] = field(default_factory=list[str])
    locks: int = 0

    @property
    def count(self) -> int:
        """Return how many faults there were."""
        return self.faults.total()


@dataclass
class Witness:
    """What was seen of one run from outside."""

    journal: Journal
    calls_file: Path
    known: Events = field(default_factory=Events)
    replies: int = 0
    journalled: set[str] = field(default_factory=set[str])
    calls: list[str] = field(default_factory=list[str])
    repeated: int = 0

    def look(self) -> None:
        """Read what was committed, then the calls that were made.

        Calls that are new were made after the last look ended, so those whose reply was journalled then are repeated.
        """
        journalled = self.journalled
        with suppress(EvolveError):  # the server is starting
            fresh = self.journal.query(EVENTS, (max(self.known, default=0),))
            self.known.update((row[0], tuple(row[1:])) for row in fresh)
            if any(row[1] == "reply" for row in fresh):
                journalled = set(requests(self.journal))
        made = self.calls_file.read_text().split() if self.calls_file.exists() else []
        self.repeated += sum(call in self.journalled for call in made[len(self.calls) :])
        self.calls, self.journalled = made, journalled


@dataclass
class Ground:
    """What runs stand on."""

    cluster: Any
    network: subprocess.Popen[bytes]
    home: Path
    """Folder of the socket that hands on to the server."""
    dice: random.Random

    def database(self, address: str, *, direct: bool) -> str:
        """Return the address of a workspace, past the network or through it. Whatever is told as committed is."""
        there = f"{address}%20-csynchronous_commit%3Don"
        if (server := f"host={running()}&") not in there:
            raise RuntimeError(f"got a workspace at {address}, which is not on the server that is struck ({server})")
        return there if direct else there.replace(server, f"host={self.home}&")

    def strike(self, kind: str, driver: subprocess.Popen[bytes], journal: Journal) -> bool:
        """Break something; tell whether it was there to be broken."""
        if kind in ("worker", "hang"):
            return self._strike_worker(kind, driver)
        if kind == "node":
            victims = [node for node in self.cluster.list_all_nodes() if node is not self.cluster.head_node]
            self.cluster.remove_node(self.dice.choice(victims), allow_graceful=False)
            self.cluster.add_node(**NODE)
        elif kind == "driver":
            driver.kill()
        elif not (sessions := [pid for (pid,) in _asked(lambda: journal.query(_OTHERS))]):
            return False
        elif kind == "session":
            journal.query("SELECT pg_terminate_backend(?)", (self.dice.choice(sessions),))
        elif kind == "server":
            restart()
        elif kind == "silence":
            self.network.send_signal(signal.SIGSTOP)
            time.sleep(CUT_SECONDS)
            self.network.send_signal(signal.SIGCONT)
        else:
            self.network.kill()
            self.network.wait()
            time.sleep(CUT_SECONDS)
            self.network = connected(self.home)
        return True

    def _strike_worker(self, kind: str, driver: subprocess.Popen[bytes]) -> bool:
        """Kill a worker, or stop it and wait until it was killed for that, HANGS_SECONDS at most."""
        if not (found := workers(f"{MARK}={self.home}")):
            return False
        victim, deadline = self.dice.choice(found), time.monotonic() + HANGS_SECONDS
        try:
            os.kill(victim, signal.SIGSTOP if kind == "hang" else signal.SIGKILL)
        except ProcessLookupError:
            return False
        while kind == "hang" and victim in workers() and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return True


@contextmanager
def ground(home: Path, seed: int) -> Generator[Ground]:
    """Have a server, a network to it, and a cluster of two nodes."""
    home.mkdir(parents=True)
    inherited = {"PYTHONPATH": str(ROOT), MARK: str(home)}  # by nodes, and so by their workers
    with patch.dict(os.environ, inherited), started(2) as cluster:
        there = Ground(cluster, connected(home), home, random.Random(seed))
        try:
            with patch.dict(os.environ, {"RAY_ADDRESS": cluster.address}):
                yield there
        finally:
            there.network.kill()
            there.network.wait()


def connected(home: Path) -> subprocess.Popen[bytes]:
    """Start what hands on from a socket in a folder to the server; return when it does."""
    socket = home / SOCKET
    socket.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.server_lives", "network", str(socket), str(running() / SOCKET)]
    process = subprocess.Popen(command, cwd=ROOT)
    while not socket.exists():
        if process.poll() is not None:
            raise RuntimeError(f"{command} ended with {process.returncode}")
        time.sleep(POLL_SECONDS)
    return process


def strike_runs(root: Path, faults: int, tasks: int, seed: int) -> Toll:
    """Break things until there were so many faults, and let the last run finish."""
    toll = Toll()
    with ground(root / "network", seed) as there:
        straight = _one_run(root / "straight", there, tasks, Toll(), 0)
        if straight is None:
            raise RuntimeError((root / "straight" / OUTPUT).read_text()[-2000:])
        for number in range(faults):
            found = _one_run(root / f"run-{number}", there, tasks, toll, faults)
            toll.different += found is not None and found != straight
            if toll.count >= faults or toll.stuck:
                break
    return toll


def _one_run(folder: Path, there: Ground, tasks: int, toll: Toll, wanted: int) -> dict[str, Any] | None:
    """Break and resume one run until it is done; return what it came to."""
    address = new_workspace()
    folder.mkdir(parents=True)
    given = {"tasks": tasks, "deployment": DEPLOYMENT, "calls": folder / CALLS}
    file = folder / "evolve.toml"
    file.write_text(SETTINGS.format(**given, database=there.database(address, direct=False)))
    config = load_config(file, {"memory": {"database": there.database(address, direct=True)}})
    with open_store(config):  # makes the tables
        pass
    with open_store(config, read_only=True) as store:
        witness = Witness(store.journal, folder / CALLS)
        done = _until_done(folder, there, store, witness, toll, wanted)
        toll.runs += 1
        toll.calls += len(witness.calls)
        toll.repeated += witness.repeated
        toll.locks += _left(store.journal)
        if not done:
            return None
        now = {row[0]: tuple(row[1:]) for row in store.journal.query(EVENTS, (0,))}
        toll.events += len(now)
        toll.lost += sum(now.get(seq) != event for seq, event in witness.known.items())
        toll.findings += [f"{item.code}: {item.message}" for item in store.doctor() if item.level != "info"]
        return outcome(store)


def _until_done(folder: Path, there: Ground, store: Store, witness: Witness, toll: Toll, wanted: int) -> bool:
    """Start the run, and resume it until it is done; tell whether it could be."""
    failed = 0
    while True:
        begun = bool(_asked(store.runs))
        toll.resumed += begun
        before = toll.count
        code = _driven(folder, there, witness, toll, wanted, "resume" if begun else "run")
        witness.look()
        if [run["status"] for run in _asked(store.runs)] == [DONE]:
            return True
        toll.anew += len(witness.journalled)
        failed = failed + 1 if code and toll.count == before else 0
        if failed == ATTEMPTS:
            toll.stuck.append((folder / OUTPUT).read_text()[-2000:])
        if toll.stuck:
            return False


def _driven(folder: Path, there: Ground, witness: Witness, toll: Toll, wanted: int, verb: str) -> int:
    """Let the command work, and break things meanwhile; return how it exited."""
    with (folder / OUTPUT).open("ab") as output:
        command = [sys.executable, "-m", "benchmarks.server_lives", verb]
        driver = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    due = time.monotonic() + there.dice.uniform(*BETWEEN)
    began = time.monotonic()
    while driver.poll() is None:
        witness.look()
        if time.monotonic() - began > HANGS_SECONDS:
            toll.stuck.append(f"{verb} hangs after {toll.faults}: {(folder / OUTPUT).read_text()[-1000:]}")
            driver.kill()
            driver.wait()
        if toll.count < wanted and time.monotonic() >= due:
            kind = KINDS[toll.count % len(KINDS)]
            if there.strike(kind, driver, witness.journal):
                toll.faults[kind] += 1
            due = time.monotonic() + there.dice.uniform(*BETWEEN)
        time.sleep(POLL_SECONDS)
    return driver.returncode


def _asked(question: Callable[[], T]) -> T:
    """Return the answer, also where the server was just started and the session has to be made anew."""
    with suppress(EvolveError):
        return question()
    return question()


def _left(journal: Journal) -> int:
    """Return how many locks are left when everybody has ended who worked on a run."""
    deadline = time.monotonic() + RELEASED_SECONDS
    while True:
        ((left,),) = _asked(lambda: journal.query(_LOCKS))
        if not left or time.monotonic() >= deadline:
            return int(left)
        time.sleep(POLL_SECONDS)
