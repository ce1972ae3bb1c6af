"""Claim scale_3: how many episodes a second, what a commit costs as knowledge grows, how many may write at a time.

Episodes a second: a frozen run in a world that costs nothing, with a simulated model that answers after one second,
four calls an episode, 256 episodes at a time, the workspace on PostgreSQL; in one process (asyncio), and by the workers
of a Ray cluster of four nodes. Ideal is what the model's seconds alone allow. Control: one episode at a time.

The committer: learning in batches of eight, the seconds from the end of a batch's last episode until it is committed
(reflection and curation by rules, gate `static`, commit), with 1,000, 10,000 and 100,000 records in the namespace, the
workspace in a file and on the server. Medians of ten batches.

Writers: sixteen processes that commit one addition after the other to the server, in one namespace and each in its own.
Control: one process that makes as many commits.

    python -m benchmarks.claims.scale_3_throughput [--quick]        --quick: 16 at a time, two nodes, 1,000 records

The server is a PostgreSQL of this machine that tells a commit before it is on disk. The nodes are processes of this
machine, and share its processors.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.claim import Row, at_least, begin, exactly
from benchmarks.postgres_server import new_workspace
from benchmarks.ray_cluster import cluster
from benchmarks.throughput import committing, filled, settings, share_of_ideal, written

IDEAL = 0.9


@dataclass(frozen=True)
class Size:
    """How much is done."""

    at_once: int = 256
    waves: int = 5
    latency: float = 1.0
    nodes: int = 4
    records: tuple[int, ...] = (1_000, 10_000, 100_000)
    batches: int = 10
    writers: int = 16
    turns: int = 50


FULL = Size()
QUICK = Size(at_once=16, waves=3, latency=0.2, nodes=2, records=(1_000,), batches=3, writers=4, turns=5)


def throughput(size: Size, home: Path) -> list[Row]:
    """Return how near to ideal each way of running comes. A quick run asks for nothing: other work slows it."""
    rows: list[Row] = []
    for name, nodes, at_once in (
        ("one episode at a time (control)", 0, 1),
        ("one process", 0, size.at_once),
        (f"Ray, {size.nodes} nodes", size.nodes, size.at_once),
    ):
        count = max(at_once * size.waves, 4)
        run = {"mode": "frozen", "concurrency": at_once, "executor": "ray" if nodes else "local"}
        with cluster(nodes) if nodes else nullcontext():
            given = settings(home / name, new_workspace(), count, size.latency, **run)
            rate, share = share_of_ideal(given, size.latency)
        told = name if at_once == 1 else f"{name}, {at_once} episodes at a time"
        rows.append(Row(f"{told}: episodes a second", rate, n=count))
        target = at_least(IDEAL) if nodes and size is FULL else None
        rows.append(Row(f"{told}: share of what is ideal", share, target, n=count))
    return rows


def growth(size: Size, home: Path) -> list[Row]:
    """Return what a commit costs with so many records, in a file and on a server."""
    rows: list[Row] = []
    for place in ("file", "PostgreSQL"):
        costs: list[float] = []
        for records in size.records:
            database = new_workspace() if place == "PostgreSQL" else ""
            given = settings(
                home / f"{place}-{records}", database, size.batches * 8, 0.0, batch_size=8, concurrency=8, mode="online"
            )
            filled(given, records)
            found = committing(given)
            costs.append(median(found))
            rows.append(Row(f"{place}, {records} records: ms to commit a batch", 1000 * median(found), n=len(found)))
        if len(costs) > 1:
            text = f"{place}: times as long with {size.records[-1]} as with {size.records[0]} records"
            rows.append(Row(text, costs[-1] / costs[0], n=size.batches))
    return rows


def writers(size: Size, home: Path) -> list[Row]:
    """Return how many commits a second writers make together."""
    rows: list[Row] = []
    for name, count, turns, apart in (
        ("one writer (control)", 1, size.writers * size.turns, False),
        (f"{size.writers} writers on one namespace", size.writers, size.turns, False),
        (f"{size.writers} writers on {size.writers} namespaces", size.writers, size.turns, True),
    ):
        found = written(settings(home / name, new_workspace(), 1, 0.0), count, turns, apart=apart)
        rows.append(Row(f"{name}: commits a second", found.commits / found.seconds, n=found.commits))
        rows.append(Row(f"{name}: commits lost", found.lost, exactly(0), n=found.commits))
    return rows


def main() -> None:
    """Measure the three, record."""
    run = begin("scale_3_throughput", __doc__)
    size = QUICK if run.quick else FULL
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="evolve-scale-3-") as folder:
        for part in (throughput, growth, writers):
            rows += part(size, Path(folder))
            print(f"{part.__name__}: done", flush=True)
    run.conclude(rows)


if __name__ == "__main__":
    main()
