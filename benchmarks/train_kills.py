"""Kills trainings at random moments and resumes them, until each is done; says what was lost, doubled or changed.

A third of the kills falls at a random time of the training, a third at a random SQL statement, a third before a random
change of a file of the training. After each kill the checkpoint, the history, the registry and the journal are read.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.lives import OUTPUT
from benchmarks.train_lives import COUNTS, METHODS, PHASES, Fate, live, prepared, processes, training_folder
from evolve.config.file import load_config
from evolve.generations.workspace_registry import FOLDER
from evolve.loop.assembly import open_store
from evolve.training import ledger
from evolve.training.ledger import METRICS
from memory.errors import EvolveError
from policies.generations.adapters import WEIGHTS, fingerprint
from policies.generations.generation_registry import Registry

POLL_S = 0.01
SPARED = Fate()
VARYING = ("seconds", "rollout_tokens_per_s", "update_tokens_per_s", "rollout_kl", "ratio_max", "ratio_mean", "ess")
UNDER_WAY = ("rollouts", "update")


@dataclass
class Toll:
    """What all the kills came to."""

    kills: int = 0
    phases: Counter[str] = field(default_factory=Counter[str])
    """What was under way when the process died, `publish` from the moment the adapter is written."""
    methods: Counter[str] = field(default_factory=Counter[str])
    trainings: int = 0
    stuck: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    registry: list[str] = field(default_factory=list[str])
    findings: list[str] = field(default_factory=list[str])
    different: list[str] = field(default_factory=list[str])
    published: list[str] = field(default_factory=list[str])
    """Trainings that did not end in exactly one candidate."""
    held: int = 0
    """Kills that left a checkpoint with something in it."""
    again: list[str] = field(default_factory=list[str])
    """Trainings that did again what a checkpoint held: a training from the start would end alike."""


@dataclass(frozen=True)
class Straight:
    """A training without a kill."""

    weights: bytes
    history: str
    figures: list[dict[str, float]]
    """Of each iteration or update, without the times that they took."""
    seconds: float
    """From the begin of its work to its end."""
    statements: int
    writes: int
    size: int
    """Bytes of its folder at the end."""


@dataclass(frozen=True)
class Plan:
    """Where the next process dies: by itself, or after so many seconds of its work."""

    seconds: float = float("inf")
    fate: Fate = SPARED


def kill_trainings(root: Path, kills: int, seed: int) -> tuple[Toll, dict[str, Straight], Path]:
    """Kill until there were `kills`, and let the last training end. Return also what was undisturbed, and the start."""
    original = prepared(root / "original")
    straight = {method: _straight(original, root / f"straight-{method}", method) for method in METHODS}
    toll, rng = Toll(), random.Random(seed)
    for number in itertools.count():
        method = METHODS[number % 2]
        folder = copied(original, root / f"training-{number}")
        _one(folder, method, straight[method], toll, _plans(straight[method], kills, toll, rng))
        shutil.rmtree(folder)
        if toll.kills >= kills or toll.stuck:
            return toll, straight, original
    raise AssertionError("unreachable")


def copied(original: Path, folder: Path) -> Path:
    """Return a copy of a workspace."""
    return Path(shutil.copytree(original, folder, symlinks=True))


def examined(folder: Path, method: str, toll: Toll) -> None:
    """Read what a training left, and note in `toll` what is wrong with it."""
    name = folder.name
    place = training_folder(folder, method)
    try:
        toll.doubled += [f"{name}: {each}" for each in (twice(place, method) if place else [])]
        toll.registry += [f"{name}: {each}" for each in registry_faults(folder)]
        with open_store(load_config(folder / "evolve.toml"), len, read_only=True) as store:
            toll.findings += [f"{name}: {item.code}: {item.message}" for item in store.doctor() if item.level != "info"]
    except (EvolveError, RuntimeError, OSError, ValueError) as error:
        toll.findings.append(f"{name}: {type(error).__name__}: {error}")


def twice(place: Path, method: str) -> list[str]:
    """Return what is wrong with the history of the weights in the checkpoint: numbers left out, or episodes twice."""
    by, done = _by(method), _done(place)
    told = [line for line in ledger.lines(place / ledger.HISTORY) if line[by] < done]
    wrong = [] if [line[by] for line in told] == list(range(done)) else [f"{by}s {[line[by] for line in told]}"]
    passes = [line["episodes"] for line in told]
    if method != "sft":
        passes = [[name for episodes in passes for name in episodes]]
    return wrong + [f"episodes twice: {each}" for each in passes if len(set(each)) < len(each)]


def held(place: Path, method: str) -> list[str]:
    """Return the figures of what the checkpoint holds, as they were written: times never come out alike twice."""
    done = _done(place)
    return [line for line in _written(place) if json.loads(line)[_by(method)] < done]


def _written(place: Path) -> list[str]:
    """Return the finished lines of figures as they stand in the file."""
    file = place / METRICS
    return file.read_text().split("\n")[:-1] if file.exists() else []


def _by(method: str) -> str:
    return "epoch" if method == "sft" else "iteration"


def _done(place: Path) -> int:
    """Return how many epochs or iterations the checkpoint holds."""
    kept = next((place / name for name in (ledger.CHECKPOINT, ledger.GOOD) if (place / name).exists()), None)
    progress = torch.load(kept, weights_only=True)["progress"] if kept else {}
    return int(next(iter(progress.values()), 0))


def registry_faults(folder: Path) -> list[str]:
    """Return what is wrong with the generations: the live one is no longer 1, files changed, or too many candidates."""
    with Registry(folder / ".evolve" / FOLDER) as registry:
        made, live = registry.generations(), [each for each in registry.generations() if each.state == "live"]
    wrong = [] if [each.version for each in live] == ["policy-v1"] else [f"live: {[each.version for each in live]}"]
    changed = [each.version for each in made if each.adapter and fingerprint(each.adapter) != each.sha256]
    more = [each.version for each in made if each.state == "candidate"]
    return wrong + [f"files of {each} changed" for each in changed] + ([f"candidates {more}"] if len(more) > 1 else [])


def difference(folder: Path, method: str, straight: Straight) -> list[str]:
    """Return in what a training that is done ended otherwise than the undisturbed one."""
    place = training_folder(folder, method)
    if place is None or not (place / "adapter").exists():
        return ["no adapter"]
    same = {
        "weights": (place / "adapter" / WEIGHTS).read_bytes() == straight.weights,
        "history": (place / ledger.HISTORY).read_text() == straight.history,
        "figures": figures(place) == straight.figures,
    }
    return [f"{folder.name} ({method}): {name} differ" for name, is_so in same.items() if not is_so]


def figures(place: Path) -> list[dict[str, float]]:
    """Return what a training told, without times, and without what rounding of the sampler's probabilities moves.

    A reply that was kept was computed in another batch than one that is sampled again; its tokens are the same.
    """
    told = ledger.lines(place / METRICS)
    return [{name: value for name, value in line.items() if name not in VARYING} for line in told]


def candidates(folder: Path) -> int:
    """Return how many candidates there are."""
    with Registry(folder / ".evolve" / FOLDER) as registry:
        return sum(each.state == "candidate" for each in registry.generations())


def _straight(original: Path, folder: Path, method: str) -> Straight:
    copied(original, folder)
    child = processes.Process(target=live, args=(folder, method, Fate()))
    child.start()
    _wait_for_work(child, folder)
    began = time.monotonic()
    child.join()
    seconds, place = time.monotonic() - began, training_folder(folder, method)
    if child.exitcode or place is None:
        raise RuntimeError((folder / OUTPUT).read_text())
    statements, writes = map(int, (folder / COUNTS).read_text().split())
    weights, history = (place / "adapter" / WEIGHTS).read_bytes(), (place / ledger.HISTORY).read_text()
    size = sum(path.stat().st_size for path in place.rglob("*"))
    return Straight(weights, history, figures(place), seconds, statements, writes, size)


def _plans(straight: Straight, kills: int, toll: Toll, rng: random.Random) -> Iterator[Plan]:
    """Yield where to kill; plans without it when enough were killed."""
    while toll.kills < kills:
        how = rng.randrange(3)
        if how == 0:
            yield Plan(seconds=rng.uniform(0, straight.seconds))
        elif how == 1:
            yield Plan(fate=Fate(statement=rng.randint(1, straight.statements)))
        else:
            yield Plan(fate=Fate(write=rng.randint(1, straight.writes)))
    while True:
        yield Plan()


def _one(folder: Path, method: str, straight: Straight, toll: Toll, plans: Iterator[Plan]) -> None:
    """Kill and resume one training until it is done."""
    toll.trainings += 1
    kept: list[str] = []
    for plan in plans:
        (folder / PHASES).unlink(missing_ok=True)
        child = processes.Process(target=live, args=(folder, method, plan.fate))
        child.start()
        if plan.seconds < float("inf"):
            _wait_for_work(child, folder)
            child.join(plan.seconds)
            child.kill()
        child.join()
        if child.exitcode == -9:
            toll.kills += 1
            toll.methods[method] += 1
            toll.phases[_phase(folder, method)] += 1
        elif child.exitcode:
            toll.stuck.append(f"{folder.name} ({method}): {(folder / OUTPUT).read_text()[-1500:]}")
        examined(folder, method, toll)
        place = training_folder(folder, method)
        again = kept and (place is None or _written(place)[: len(kept)] != kept)
        toll.again += [f"{folder.name} ({method})"] if again else []
        kept = held(place, method) if place else []
        toll.held += child.exitcode == -9 and bool(kept)
        if not child.exitcode:
            toll.different += difference(folder, method, straight)
            toll.published += [f"{folder.name} ({method}): {candidates(folder)}"] * (candidates(folder) != 1)
        if child.exitcode != -9:
            return


def _wait_for_work(child: Any, folder: Path) -> None:
    while child.is_alive() and _last(folder) not in UNDER_WAY:
        time.sleep(POLL_S)


def _last(folder: Path) -> str:
    """Return the last phase that a process noted."""
    told = (folder / PHASES).read_text().split() if (folder / PHASES).exists() else []
    return told[-1] if told else "start"


def _phase(folder: Path, method: str) -> str:
    place = training_folder(folder, method)
    publishing = place is not None and ((place / "adapter").exists() or (place / ".adapter.new").exists())
    return "publish" if publishing else _last(folder)
