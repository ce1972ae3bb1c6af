"""Changes of a known worth, taken through the gates as runs take them: `BatchScreen.judge`, then `HeldOut.judge`.

Nothing of a gate is written again here: stages, groups, progress, A/A and waiting are the gates' own, with the settings
that the default configuration gives them. What is simulated is the world that they ask: which task passes and how far
it comes, with and without a change, from run to run. `static` is left out: all changes here are such as it lets
through. So is the cap on calls, which only makes changes wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from evolve.config.model import Config
from evolve.gates.batch_screen import BatchScreen
from evolve.gates.held_out import HeldOut, rules_of
from evolve.seeds import seed_for
from evolve.statistics.partial_progress import Marks
from memory.records import DeltaOp, Op, Provenance, Task, Trajectory, Verdict
from playbooks.view import RecordView

BATCH = 16
"""Tasks that a proposal is written from."""
SOLVED = 0.5
"""Share of the tasks that pass without any change, leaving chance aside."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class World:
    """What chance does from run to run."""

    noise: float = 0.05
    """Share of tasks that pass in one of two runs and fail in the other, each way; 1/4 is a coin."""
    wavers: float = 1.0
    """Share of tasks whose progress is never twice the same, as that of a policy that samples."""
    prompts: float = 0.0
    """Share of tasks that another prompt ends otherwise, whatever it says, and always so: a greedy policy."""


@dataclass(frozen=True)
class Effect:
    """What a change does, as shares of all tasks."""

    helps: float = 0.0
    harms: float = 0.0
    moves: float = 0.0
    """They come further and pass no more often."""


USELESS = Effect()


@dataclass
class Bench:
    """Runs tasks in a world, as gates ask for it; counts the episodes."""

    seed: int
    world: World
    select: int
    effects: dict[str, Effect] = field(default_factory=dict[str, Effect])
    known: list[str] = field(default_factory=list[str])
    """Changes that were accepted in earlier batches: all arms are shown them."""
    episodes: int = 0
    _runs: dict[tuple[object, ...], tuple[Mask, NDArray[np.float64]]] = field(default_factory=dict, init=False)
    _seen: set[tuple[object, ...]] = field(default_factory=set, init=False)
    _touched: dict[str, tuple[Mask, Mask, Mask]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Draw what is true of each task whatever is known."""
        self.tasks = tuple(_TASKS[: BATCH + self.select])
        self._rng = np.random.default_rng(self.seed)
        self._solved = self._rng.random(len(self.tasks)) < SOLVED
        self._wavers = self._rng.random(len(self.tasks)) < self.world.wavers

    async def __call__(self, ops: Sequence[DeltaOp] | None, tasks: Sequence[Task], seed: int) -> Marks:
        """Return the marks of an arm; the same ops, tasks and seed give the same ones."""
        names = (*self.known, *(op.op_id for op in ops or ()))
        key = (names, seed)
        if key not in self._runs:
            self._runs[key] = self._run(names)
        passed, far = self._runs[key]
        places = [_PLACES[task.id] for task in tasks]
        new = {(key, place) for place in places} - self._seen
        self.episodes += len(new)
        self._seen |= new
        marks = {task.id: bool(passed[place]) for task, place in zip(tasks, places, strict=True)}
        return Marks(marks, {task.id: float(far[place]) for task, place in zip(tasks, places, strict=True)})

    def _run(self, names: Sequence[str]) -> tuple[Mask, NDArray[np.float64]]:
        solved, count = self._solved.copy(), len(self.tasks)
        further = np.zeros(count)
        touched = [self._touch(name) for name in names]
        for helps, _, moves in touched:
            solved |= helps
            further += 0.05 * moves
        for _, harms, _ in touched:
            solved &= ~harms
        flip = (1 - sqrt(1 - 4 * self.world.noise)) / 2
        passed = solved ^ (self._rng.random(count) < flip)
        if self.world.prompts and names != tuple(self.known):
            passed ^= np.random.default_rng(seed_for(self.seed, *names)).random(count) < self.world.prompts
        wavering = 0.01 * self._wavers * self._rng.random(count)
        return passed, np.where(passed, 0.98, np.minimum(0.2 + further, 0.9)) + wavering

    def _touch(self, name: str) -> tuple[Mask, Mask, Mask]:
        """Return the tasks that a change helps, harms and moves, drawn once."""
        if name not in self._touched:
            effect, draw = self.effects.get(name, USELESS), self._rng.random((3, len(self.tasks)))
            failing = ~self._solved
            helps = failing & (draw[0] < effect.helps / (1 - SOLVED))
            harms = self._solved & (draw[1] < effect.harms / SOLVED)
            self._touched[name] = helps, harms, failing & (draw[2] < effect.moves / (1 - SOLVED))
        return self._touched[name]


@dataclass(frozen=True)
class Life:
    """What became of some changes."""

    accepted: frozenset[str]
    episodes: int
    """What the gates ran."""


Batches = Sequence[Sequence[Effect]]


def lives(
    seed: int, trials: int, batches: Batches, select: int, world: World | None = None, *, screen: bool = True
) -> list[Life]:
    """Take the changes of each batch through the gates, with those that wait, in so many worlds.

    `select` is the size of the split that `held_out` runs. Change k of batch b is named `b.k`. Without `screen`
    every change comes to `held_out`.
    """

    async def all_of() -> list[Life]:
        benches = (Bench(seed_for(seed, at), world or World(), select) for at in range(trials))
        return [await _live(bench, batches, screen=screen) for bench in benches]

    return asyncio.run(all_of())


def share(found: Sequence[Life], *names: str) -> float:
    """Return which share of the named changes was accepted."""
    return sum(name in life.accepted for life in found for name in names) / (len(names) * len(found))


async def _live(bench: Bench, batches: Batches, *, screen: bool) -> Life:
    verdicts: list[Verdict] = []
    waiting: list[DeltaOp] = []
    config = Config()
    held_out = HeldOut(bench, bench.tasks[BATCH:], bench.seed, rules=rules_of(config), past=lambda: verdicts)
    for at, effects in enumerate(batches):
        ops = [_op(f"{at}.{place}", place, len(effects)) for place in range(len(effects))]
        bench.effects |= {op.op_id: effect for op, effect in zip(ops, effects, strict=True)}
        if screen:
            verdict = await BatchScreen(bench, bench.seed).judge(ops, VIEW, EPISODES)
            ops = [op for op in ops if op.op_id in verdict.accepted]
        verdict = await held_out.judge([*waiting, *ops], VIEW, ())
        verdicts.append(verdict)
        bench.known += verdict.accepted
        waiting = [op for op in (*waiting, *ops) if op.op_id in verdict.deferred]
    return Life(frozenset(bench.known), bench.episodes)


def _op(name: str, place: int, count: int) -> DeltaOp:
    """Return a change that was written from its share of the batch."""
    origin = tuple(task.id for task in _TASKS[place:BATCH:count])
    return DeltaOp(op=Op.ADD, op_id=name, payload={"content": name}, provenance=Provenance(task_ids=origin))


_TASKS = tuple(Task(id=f"t{at}", instruction="", split="dev") for at in range(BATCH + 1000))
_PLACES = {task.id: at for at, task in enumerate(_TASKS)}
EPISODES = tuple(Trajectory(task=task) for task in _TASKS[:BATCH])
VIEW = RecordView()
