"""Speed of recall, and Chroma's recall against exact search, from 10 to 10,000 records.

    python benchmarks/recall_speed.py [--records 10 100 1000 10000] [--queries 200]

`ms` is the wall time of one `Store.recall` (hashed query embedding, k 24, words + vectors + utility + diversity), `cpu`
the processor time of the same calls in the calling thread: on a busy machine only the latter says something. `frozen`
reads a snapshot. `recall@10` compares Chroma with exact search on clustered vectors. `carry` is how long the background
owner took to bring all records to Chroma. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from memory.embedders.hashing import HashingEmbedder
from memory.indexes.chroma import ChromaIndex
from memory.indexes.exact import ExactIndex
from memory.kinds import register
from memory.protocols import Vector
from memory.records import DeltaOp, Op, Payload, RecallQuery
from memory.store import Store

VOCABULARY = [f"{stem}{end}" for stem in (f"term{n}" for n in range(1500)) for end in ("", "x")]
WEIGHTS = [1 / (rank + 5) for rank in range(len(VOCABULARY))]
SPECIAL = 50_000
"""Words that subjects draw theirs from."""
DIM = 256


@register
class Rule(Payload):
    """A record of the benchmark."""

    kind: ClassVar[str] = "benchmark_rule"
    content: str

    def text(self) -> str:
        return self.content


def sentence(rng: random.Random, words: int) -> str:
    """Return words drawn by Zipf's law."""
    return " ".join(rng.choices(VOCABULARY, WEIGHTS, k=words))


def about(rng: random.Random, subjects: int, words: int) -> str:
    """Return words of which half are of a subject, one of so many, each with ten words of its own."""
    own = random.Random(rng.randrange(subjects)).choices(range(SPECIAL), k=10)
    half = words // 2
    return " ".join([*(f"special{word}" for word in rng.choices(own, k=half)), sentence(rng, words - half)])


def fill(store: Store, records: int, drawn: Callable[[int], str]) -> None:
    """Commit so many records of thirty words each, as they are `drawn`."""
    for start in range(0, records, 500):
        ops = [
            DeltaOp(op=Op.ADD, kind=Rule.kind, payload={"content": drawn(30)}) for _ in range(min(500, records - start))
        ]
        store.commit("default", ops, actor="benchmark")


def timed(call: Callable[[str], object], queries: Sequence[str]) -> str:
    """Return `p50 p95 | cpu p50` in milliseconds."""
    walls, cpus = [], []
    for query in queries:
        wall, cpu = time.perf_counter(), time.thread_time()
        call(query)
        walls.append((time.perf_counter() - wall) * 1e3)
        cpus.append((time.thread_time() - cpu) * 1e3)
    return f"{np.percentile(walls, 50):6.2f} {np.percentile(walls, 95):6.2f} | {np.percentile(cpus, 50):5.2f}"


def clustered(records: int, seed: int) -> Vector:
    """Return unit vectors in clusters of about 20."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(max(1, records // 20), DIM))
    vectors = centres[rng.integers(len(centres), size=records)] + 0.5 * rng.normal(size=(records, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def found_share(records: int, queries: int, folder: Path) -> float:
    """Return recall@10 of Chroma against exact search."""
    vectors, ids = clustered(records, seed=1), [f"{n:06d}" for n in range(records)]
    chroma, exact = ChromaIndex(folder, model="benchmark", dim=DIM), ExactIndex()
    for index in (chroma, exact):
        for start in range(0, records, 1000):
            index.upsert("c", ids[start : start + 1000], vectors[start : start + 1000])
    hits = total = 0
    noise = np.random.default_rng(2).normal(size=(queries, DIM)).astype(np.float32) * 0.3
    for row, extra in enumerate(noise):
        query = vectors[row * 7919 % records] + extra / np.sqrt(DIM)
        query = (query / np.linalg.norm(query)).astype(np.float32)
        truth = {key for key, _ in exact.search("c", query, 10)}
        hits += len(truth & {key for key, _ in chroma.search("c", query, 10)})
        total += len(truth)
    chroma.close()
    return hits / total


def measure(records: int, queries: int) -> list[str]:
    """Return one row of the table."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evolve.db"
        with Store.open(path, embedder=HashingEmbedder(DIM)) as store:
            fill(store, records, partial(sentence, rng))
            texts = [sentence(rng, 25) for _ in range(queries)]
            started = time.perf_counter()
            store.recall(RecallQuery(text=texts[0]))
            store.index.flush(600)
            carry = time.perf_counter() - started
            engine = store.index.state().engine
            live = timed(lambda text: store.recall(RecallQuery(text=text)), texts)
            snapshot = store.snapshot("default").id
            store.recall(RecallQuery(text=texts[0], snapshot_id=snapshot))
            frozen = timed(lambda text: store.recall(RecallQuery(text=text, snapshot_id=snapshot)), texts)
        with Store.open(path, embedder=HashingEmbedder(DIM), index="exact") as store:
            store.recall(RecallQuery(text=texts[0]))
            exact = timed(lambda text: store.recall(RecallQuery(text=text)), texts)
        share = found_share(records, min(queries, records), Path(folder) / "clusters")
    return [f"{records:6d}", f"{live} ({engine})", exact, frozen, f"{share:.3f}", f"{carry:.1f} s"]


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args()
    print("records | live ms p50 p95 | cpu | exact ms p50 p95 | cpu | frozen ms p50 p95 | cpu | recall@10 | carry")
    for records in options.records:
        print(" | ".join(measure(records, options.queries)), flush=True)


if __name__ == "__main__":
    main()
