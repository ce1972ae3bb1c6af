"""Compare embedders at finding a rule by meaning: recall of 60 rules by 180 queries in other words, among look-alikes.

    python -m benchmarks.paraphrases [EMBEDDER ...]        default: hashing; `sentence:FOLDER`, `module:function` ...

`benchmarks/data/paraphrases.jsonl` holds, for each rule, three queries written by hand that mean it in other words, and
a negative: a sentence of the rule's own words that says something else. All 120 texts are the records. `vector` ranks
by cosine alone; `recall` is the loop's own: words, vectors and utility fused. MRR is the mean of 1 / rank, 0 below the
24th place. Intervals are 95 %, bootstrapped over rules.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from evolve.config.model import Config, MemorySection
from evolve.loop.assembly import make_embedder, register_kinds
from memory.protocols import Embedder
from memory.records import DeltaOp, Op, RecallQuery
from memory.store import Store

FILE = Path(__file__).parent / "data" / "paraphrases.jsonl"
K, DEPTH = 5, 24
RESAMPLES = 2000


@dataclass(frozen=True)
class Item:
    """One rule, what asks for it, and what only looks like it."""

    rule: str
    queries: tuple[str, ...]
    negative: str


def load() -> list[Item]:
    """Return the labelled set."""
    rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return [Item(row["rule"], tuple(row["queries"]), row["negative"]) for row in rows]


def by_vector(embedder: Embedder, items: Sequence[Item]) -> list[list[float]]:
    """Return for each rule and query the place of the rule, from 1, by cosine among all texts."""
    texts = embedder.embed([item.rule for item in items] + [item.negative for item in items])
    places: list[list[float]] = []
    for at, item in enumerate(items):
        scores = embedder.embed(item.queries) @ texts.T
        places.append([1.0 + float((row > row[at]).sum()) for row in scores])
    return places


def by_recall(embedder: Embedder, items: Sequence[Item]) -> list[list[float]]:
    """Return the same for the loop's recall; infinity where the rule was not among those recalled."""
    register_kinds()
    texts = [item.rule for item in items] + [item.negative for item in items]
    ops = [DeltaOp(op=Op.ADD, kind="bullet", payload={"content": text}) for text in texts]
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "evolve.db", embedder=embedder, index="exact") as store,
    ):
        store.commit("default", ops, actor="benchmark")
        return [[_place(store, query, item.rule) for query in item.queries] for item in items]


def _place(store: Store, query: str, rule: str) -> float:
    found = store.recall(RecallQuery(text=query, k=DEPTH, token_budget=1 << 20))
    ranks = [rank for rank, each in enumerate(found, start=1) if each.record.payload.text() == rule]
    return float(ranks[0]) if ranks else float("inf")


def figures(places: Sequence[Sequence[float]]) -> Iterator[tuple[str, float, float, float]]:
    """Yield (name, value, low, high) of recall@5 and MRR."""
    table = np.array(places)
    draws = np.random.default_rng(0).integers(len(table), size=(RESAMPLES, len(table)))
    for name, gains in (
        (f"recall@{K}", (table <= K).mean(axis=1)),
        ("MRR", np.where(table <= DEPTH, 1 / table, 0.0).mean(axis=1)),
    ):
        low, high = np.percentile(gains[draws].mean(axis=1), [2.5, 97.5])
        yield name, float(gains.mean()), float(low), float(high)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("embedders", nargs="*", default=["hashing"], metavar="EMBEDDER")
    items = load()
    drawn = Table("embedder", "by", f"recall@{K}", "MRR", "ms a text")
    for name in parser.parse_args().embedders:
        embedder = make_embedder(Config(memory=MemorySection(embedder=name)))
        embedder.embed(["a first text loads the model"])
        started = time.process_time()
        embedder.embed([item.rule for item in items])
        spent = 1000 * (time.process_time() - started) / len(items)
        for way, places in (("vector", by_vector(embedder, items)), ("recall", by_recall(embedder, items))):
            cells = [f"{value:.3f} [{low:.3f}, {high:.3f}]" for _, value, low, high in figures(places)]
            drawn.add_row(Path(name).name, way, *cells, f"{spent:.2f}")
    Console(width=120).print(drawn)


if __name__ == "__main__":
    main()
