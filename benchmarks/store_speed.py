"""Time until a delta is committed and until the vector index has it, and time of a recall.

One `Store` that owns its Chroma index, filled with records of 30 words drawn by Zipf's law; hashed embeddings of 256
dimensions. Wall times in milliseconds, each beside the processor time of the calling thread, because a busy machine
lengthens the former only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.recall_speed import DIM, Rule, fill, sentence
from memory.embedders.hashing import HashingEmbedder
from memory.records import DeltaOp, Op, RecallQuery, UsageCounts
from memory.store import Store

LAG_LIMIT_S = 10.0
KINDS = (Op.ADD, Op.EDIT, Op.TAG)
T = TypeVar("T")


@dataclass(frozen=True)
class Times:
    """Wall and processor times of one operation, in milliseconds."""

    wall: list[float]
    cpu: list[float]

    def p(self, percent: float) -> float:
        """Return a percentile of the wall times."""
        return float(np.percentile(self.wall, percent))

    def cpu_p(self, percent: float) -> float:
        """Return a percentile of the processor times."""
        return float(np.percentile(self.cpu, percent))


@dataclass(frozen=True)
class StoreTimes:
    """What was measured."""

    engine: str
    """What answered recall: `chroma` or `exact`."""
    deltas: dict[str, Times]
    """Kind of delta -> time of its own commit, one right after the other while the index follows."""
    rested: Times
    """The same for an ADD after a pause, with cold caches."""
    recall: list[Times]
    """One element a round."""
    lag_s: list[float]
    """Commit of one delta -> the index holds it."""


def measure(root: Path, records: int, deltas: int, queries: int, rounds: int) -> StoreTimes:
    """Fill a store, time `rounds` times `queries` new recalls, then `deltas` single commits of each kind."""
    root.mkdir(parents=True)
    rng = random.Random(0)
    with Store.open(root / "evolve.db", embedder=HashingEmbedder(DIM)) as store:
        fill(store, records, partial(sentence, rng))
        store.index.flush(600)
        asked = [[sentence(rng, 25) for _ in range(queries)] for _ in range(rounds)]
        store.recall(RecallQuery(text=sentence(rng, 25)))
        recall = [timed(lambda text: store.recall(RecallQuery(text=text)), texts) for texts in asked]
        engine = store.index.state().engine
        rested, lag = _followed(store, list(_deltas(store, Op.ADD, deltas // 3, rng)))
        times = {op.value: timed(partial(_commit, store), list(_deltas(store, op, deltas, rng))) for op in KINDS}
    return StoreTimes(engine, times, rested, recall, lag)


def timed(call: Callable[[T], object], items: Iterable[T]) -> Times:
    """Return how long each call took."""
    times = Times([], [])
    for item in items:
        wall, cpu = time.perf_counter(), time.thread_time()
        call(item)
        times.wall.append((time.perf_counter() - wall) * 1e3)
        times.cpu.append((time.thread_time() - cpu) * 1e3)
    return times


def _deltas(store: Store, op: Op, count: int, rng: random.Random) -> Iterator[DeltaOp]:
    targets = rng.sample([record.id for record in store.view("default").records()], count)
    for target in targets:
        text = {"content": sentence(rng, 30)}
        if op is Op.ADD:
            yield DeltaOp(op=op, kind=Rule.kind, payload=text)
        elif op is Op.EDIT:
            yield DeltaOp(op=op, kind=Rule.kind, target_id=target, payload=text)
        else:
            yield DeltaOp(op=op, kind=Rule.kind, target_id=target, usage=UsageCounts(helpful=1))


def _followed(store: Store, deltas: Sequence[DeltaOp]) -> tuple[Times, list[float]]:
    """Commit the deltas one by one, each when the index has the one before; return the seconds that took as well."""
    times, lag = Times([], []), list[float]()
    for delta in deltas:
        one = timed(partial(_commit, store), [delta])
        times.wall.extend(one.wall)
        times.cpu.extend(one.cpu)
        lag.append(_lag(store))
    return times, lag


def _commit(store: Store, delta: DeltaOp) -> None:
    commit = store.commit("default", [delta], actor="benchmark")
    if commit.refused:
        raise RuntimeError(commit.refused[0].reason)


def _lag(store: Store) -> float:
    """Wait until nothing waits for the index any more; return the seconds."""
    started = time.perf_counter()
    while store.index.state().pending and time.perf_counter() - started < LAG_LIMIT_S:
        time.sleep(0.002)
    return time.perf_counter() - started
