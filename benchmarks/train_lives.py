"""Trainings that may be killed: the workspace they begin in, what runs in their processes, and their own slots.

The slots are what a user might configure: an advantage that praises whatever was said (so that every batch has a
gradient), one that is no number, a filter that keeps everything, and an office behind a server.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lives import DEATH, OUTPUT, Death, trace
from benchmarks.shell import Ended
from evolve.config.file import load_config
from evolve.config.training import RECIPES
from evolve.environments.office.environment import Office, OfficeConfig, OfficeEpisode
from evolve.errors import EnvironmentFailure
from evolve.generations.workspace_registry import FOLDER
from evolve.training import ledger
from evolve.training.training_session import train, train_from_logs
from memory.records import Task
from policies.rl.protocols import Array, Episodes, Flags

DEPLOYMENT, ITERATIONS, EPOCHS = 600, 3, 6
METHODS = ("run", "sft")
"""Training by rollouts as `[train]` says, and on the journal."""
PHASES, COUNTS, BEFORE, POISON = "phases.txt", "counts.txt", "before.txt", "poison"
WRITES = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate")
"""Audit events that change files; an `open` to read is none."""
SETTINGS = """\
[run]
tasks = 4
batch_size = 4

[controls]
no_memory = 0.0

[policy]
name = "pocket"
max_tokens = {tokens}

[environment]
{environment}
max_steps = {steps}

[memory]
index = "exact"

[train]
rank = 2
learning_rate = 1e-3
iterations = {iterations}
epochs = {epochs}
chains = 1
rollouts = 2
advantages = "benchmarks.train_lives:{advantages}"
filter = "benchmarks.train_lives:Everything"

[train.sft]
batch = 2

[train.limits]
patience = 99
"""
OFFICE = f'name = "office"\ndeployment = {DEPLOYMENT}'


processes: Any = get_context("forkserver")
"""Children start in a moment: their server has imported everything already, and holds no thread."""
processes.set_forkserver_preload(["benchmarks.train_lives", "policies.local", "peft"])


def settings(folder: Path, environment: str = OFFICE, advantages: str = "praised", steps: int = 3) -> None:
    """Write evolve.toml, by default for short episodes."""
    more = {"environment": environment, "advantages": advantages, "steps": steps, "tokens": 16 * steps}
    (folder / "evolve.toml").write_text(SETTINGS.format(iterations=ITERATIONS, epochs=EPOCHS, **more))


def prepared(folder: Path) -> Path:
    """Make a workspace that has done tasks, and in which an adapter trained on them is live. Return the folder."""
    folder.mkdir(parents=True)
    settings(folder, steps=6)
    for line in ("run", "train sft --set train.sft.passes=1", "policy promote 1 --unmeasured"):
        ended = command(folder, line)
        if ended.code:
            raise RuntimeError(f"evolve {line}: {ended.err}")
    settings(folder)
    place = folder / ".evolve" / FOLDER / ledger.FOLDER
    (folder / BEFORE).write_text("\n".join(path.name for path in place.iterdir()))
    return folder


def command(folder: Path, line: str, largest: int | None = None) -> Ended:
    """Run an `evolve` command in a process of its own; `largest`: bytes that a file may have."""
    child = processes.Process(target=_commanded, args=(folder, line, largest))
    child.start()
    child.join()
    return Ended(child.exitcode, (folder / "out.txt").read_text(), (folder / "err.txt").read_text())


def _commanded(folder: Path, line: str, largest: int | None) -> None:
    from evolve.cli.main import app

    os.chdir(folder)
    for number, name in ((1, "out.txt"), (2, "err.txt")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    app(line.split())


@dataclass(frozen=True)
class Fate:
    """Where a process dies: at which SQL statement, or before which change of a file of the training. None = not."""

    statement: int | None = None
    write: int | None = None


def live(folder: Path, method: str, fate: Fate) -> None:
    """Do a training, or go on with it; die where it is fated to. A training that ends notes what it counted."""
    output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    phase("start")
    trace(folder, Death(fate.statement), statements := Counter[bool]())
    writes = watch_writes(folder, fate.write)
    if method == "sft":
        phase("update")
        config = load_config(folder / "evolve.toml", {"train": RECIPES["sft"]})
        train_from_logs(config, method, report=lambda _: phase("update"))
    else:
        train(load_config(folder / "evolve.toml"), method, lambda _: phase("rollouts"))
    (folder / COUNTS).write_text(f"{statements.total()} {len(writes)}")
    phase("done")


def phase(name: str) -> None:
    """Note what begins; the file is in the process's folder."""
    with Path(PHASES).open("a") as file:
        file.write(f"{name}\n")


def watch_writes(folder: Path, last: int | None) -> list[str]:
    """Return a list that grows with each change of a file below the workspace's generations; die before the `last`."""
    place, made = str(folder / ".evolve" / FOLDER), list[str]()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in WRITES or not str(arguments[0]).startswith(place):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        made.append(event)
        if len(made) == last:
            os.write(os.open(folder / DEATH, os.O_WRONLY | os.O_CREAT), f"{event} {arguments[0]}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return made


class Everything:
    """Keeps every trajectory, and notes that rollouts begin: a training makes its filter before them."""

    def __init__(self) -> None:
        phase("rollouts")

    def keep(self, episodes: Episodes) -> Flags:
        """Return [n], True."""
        return np.ones(len(episodes.rewards), dtype=bool)


def praised(episodes: Episodes) -> Array:
    """Return [s], 1, and note that an update begins."""
    phase("update")
    return np.ones(len(episodes.trajectory))


_batches = Counter[str]()


def poisoned(episodes: Episodes) -> Array:
    """Return the same for the first batch of a process; after it, while a file says so, what is no number."""
    _batches["seen"] += 1
    return praised(episodes) * (np.nan if _batches["seen"] > 1 and Path(POISON).exists() else 1.0)


class Remote(Office):
    """The office behind a server: an episode begins when the server has said so."""

    def __init__(self, deployment: int, url: str) -> None:
        super().__init__(OfficeConfig(deployment=deployment))
        self.url = url

    def start(self, task: Task, seed: int = 0) -> OfficeEpisode:
        """Ask, then begin. Raises `EnvironmentFailure` where nobody answers."""
        try:
            urllib.request.urlopen(self.url, timeout=10).close()
        except (urllib.error.URLError, OSError) as error:
            raise EnvironmentFailure(f"the office at {self.url} does not answer ({error}); start it again") from error
        return super().start(task, seed)


def training_folder(folder: Path, method: str) -> Path | None:
    """Return where the one training of a method stands, None before it began; that of the live policy is another."""
    before = (folder / BEFORE).read_text().split()
    place = folder / ".evolve" / FOLDER / ledger.FOLDER
    return next((each for each in place.glob(f"{method}-*") if each.name not in before), None)
