"""Claim scale_1: where episodes run and where the journal lies changes nothing of it.

300 office tasks (60 of each of five deployments, each in a workspace of its own) are done in this process with the
workspace in a file, the same with the workspace on PostgreSQL, and by workers of a Ray cluster of one, two and four
nodes. Once the scripted worker acts, under the default gates, whose trials are episodes too; once the pocket model,
under gate `static`. All runs have one id, from which those of episodes follow, and number their records alike. Compared
is every event of the journal, batch by batch: its type, subject, and all that it says, replies whole. Left out are
times, and what hangs on which requests a process answered together: log-probabilities, which differ by rounding, and
how many tokens its cache held. Within a batch the order is that in which episodes ended, and is not compared.
Controls: the same run once more in this process (A/A), and one with another seed, which must differ. How many workers
did episodes is counted, and that no file held the journal which lay on the server.

    python -m benchmarks.claims.scale_1_same [--quick]        --quick: 12 tasks, two nodes

The server is a PostgreSQL of this machine, the nodes are processes of it.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from hashlib import sha256
from itertools import count, zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.claim import Row, Target, at_least, begin, exactly
from benchmarks.postgres_server import new_workspace
from benchmarks.ray_cluster import cluster
from evolve.config.model import Config
from evolve.loop.assembly import open_store
from evolve.loop.executors.ray import RayExecutor
from evolve.loop.session import arun
from memory.records import Event, Trajectory, Usage
from memory.store import Store

TASKS, DEPLOYMENTS = 60, (3, 11, 17, 23, 29)
QUICK_TASKS, QUICK_DEPLOYMENTS = 12, (3,)
NODES, QUICK_NODES = (1, 2, 4), (2,)
RUN_ID = "01SCALE1SCALE1SCALE1SCALE1"
LEFT_OUT = {"seconds", "reply_seconds", "created_at", "logprobs", "cached_tokens"}
ACTING: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "scripted": {
        "policy": {"name": "evolve.environments.office.worker:worker"},
        "gate": {"names": ["default"]},
    },
    "pocket": {"policy": {"name": "pocket"}, "gate": {"names": ["static"]}},
}
Batches = list[Counter[str]]
"""For each batch, how often each event of it was said; an event is named by its hash."""


def config(root: Path, acting: str, deployment: int, database: str, **run: Any) -> Config:
    """Return the configuration of a run in a deployment."""
    sections: dict[str, dict[str, Any]] = {
        "run": {"batch_size": 8, "concurrency": 8, **run},
        "environment": {"name": "office", "deployment": deployment, "max_steps": 16},
        "memory": {"index": "exact", "database": database},
        "playbook": {"reflector": "rules", "curator": "direct"},
        "policy": {**ACTING[acting]["policy"], **({"model": str(deployment)} if acting == "scripted" else {})},
        "gate": dict(ACTING[acting]["gate"]),
    }
    return Config.model_validate({"root": root, **sections})


def lived(settings: Config) -> tuple[Batches, int]:
    """Run; return what the journal says, and how many workers of a cluster did episodes.

    Runs have one id, and records are numbered in the order of commits.
    """
    numbers, workers, used = count(), set[str](), RayExecutor._used  # pyright: ignore[reportPrivateUsage]

    def seen(executor: RayExecutor, done: tuple[Trajectory, str, Usage]) -> Usage:
        workers.add(done[1])
        return used(executor, done)

    with (
        patch("evolve.loop.session.new_id", lambda: RUN_ID),
        patch("memory.changes.new_id", lambda: f"{next(numbers):026}"),
        patch.object(RayExecutor, "_used", seen),
    ):
        asyncio.run(arun(settings))
    with open_store(settings, read_only=True) as store:
        return list(batches(store)), len(workers)


def batches(store: Store) -> Iterator[Counter[str]]:
    """Yield the events of each batch, up to its commit; last, what comes after."""
    whole = {each.id: each for each in (*store.trajectories(), *store.reflections())}
    found: Counter[str] = Counter()
    for event in store.events():
        body = whole[event.subject].model_dump(mode="json") if event.subject in whole else None
        if event.type == "reply":  # what the event says of it is the hash of all of it
            body = {"task": event.data["task_id"], "reply": (store.get_reply(event.subject) or {})["reply"]}
        found[named(event, body)] += 1
        if event.type == "knowledge.commit":
            yield found
            found = Counter()
    yield found


def named(event: Event, body: Any) -> str:
    """Return the hash of what an event says. What a run is hangs on where it runs: of it only its id."""
    kept = event.data if body is None and event.type != "run" else {"body": body}
    said = compared_of({"type": event.type, "namespace": event.namespace, "subject": event.subject, "data": kept})
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def compared_of(value: Any) -> Any:
    """Return a value without what is left out."""
    if isinstance(value, dict):
        return {key: compared_of(each) for key, each in value.items() if key not in LEFT_OUT}
    return [compared_of(each) for each in value] if isinstance(value, list) else value


def differing(one: Batches, other: Batches) -> int:
    """Return how many events stand in one journal and not, in the same batch, in the other."""
    pairs = zip_longest(one, other, fillvalue=Counter[str]())
    return sum(((mine - theirs) + (theirs - mine)).total() for mine, theirs in pairs)


def compared(acting: str, tasks: int, deployments: Sequence[int], nodes: Sequence[int]) -> list[Row]:
    """Return how each way of running differs from a run in this process."""

    def ran(name: str, *, at: int = 0, server: bool = False, seed: int = 0) -> tuple[Batches, int]:
        run = {"tasks": tasks, "seed": seed, "executor": "ray" if at else "local"}
        found: Batches = []
        workers: list[int] = []
        with cluster(at) if at else nullcontext(), tempfile.TemporaryDirectory(prefix="evolve-scale-1-") as root:
            for deployment in deployments:
                database = new_workspace() if server else ""
                said, did = lived(config(Path(root) / str(deployment), acting, deployment, database, **run))
                found += said
                workers.append(did)
            if server and list(Path(root).rglob("evolve.db")):
                raise SystemExit("the journal lay in a file, not on the server")
        print(f"{acting}, {name}: {sum(each.total() for each in found)} events in {len(found)} batches", flush=True)
        return found, min(workers)

    here, _ = ran("in this process")
    events = sum(each.total() for each in here)
    rows = [
        Row(f"{acting}: events of a run in this process", events),
        Row(f"{acting}: commits of it", len(here) - len(deployments)),
    ]

    def differ(text: str, name: str, target: Target, **where: Any) -> int:
        found, workers = ran(name, **where)
        rows.append(Row(f"{acting}: events that differ {text}", differing(here, found), target, n=events))
        print(f"{rows[-1].claim}: {rows[-1].measured:g}", flush=True)
        return workers

    differ("once more (A/A)", "again", exactly(0))
    differ("with another seed (control)", "another seed", at_least(1), seed=1)
    differ("on PostgreSQL", "PostgreSQL", exactly(0), server=True)
    for number in nodes:
        workers = differ(f"on a Ray cluster, nodes: {number}", f"Ray, nodes: {number}", exactly(0), at=number)
        rows.append(Row(f"{acting}: workers that did episodes, nodes: {number}", workers, at_least(number)))
    return rows


def main() -> None:
    """Run everywhere, compare."""
    run = begin("scale_1_same", __doc__)
    sizes = (QUICK_TASKS, QUICK_DEPLOYMENTS, QUICK_NODES) if run.quick else (TASKS, DEPLOYMENTS, NODES)
    found: list[Row] = []
    for acting in ACTING:
        found += compared(acting, *sizes)
        run.record(found)
    run.conclude(found)


if __name__ == "__main__":
    main()
