"""Predicts how many episodes a second a run on a Ray cluster does with more workers, and what limits it.

The model is a closed queueing network (Reiser and Lavenberg, "Mean-value analysis of closed multichain queuing
networks", Journal of the ACM 27(2), 1980). Its customers are the episodes under way. For the seconds of the model's
calls an episode queues behind nobody. Everything else is done by stations that serve one episode at a time: the process
of the run, which recalls and stores trajectories; the workers; and the writer's lock of the database.

What an episode takes there is fitted to what `scale_3` stored of a Ray cluster. Processes and server shared two
processors, so the fit has a single station, and does not tell a cluster from one process; a profile says how its
service divides. It is checked by runs with fewer episodes at a time or faster calls: two that are stored, and three on
earlier source that docs/LOG.md has (2026-11-27, beside other work, and 2026-11-28).

    python -m benchmarks.queueing [--json]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.claims.scale_3_throughput import FULL
from benchmarks.table import Rows, find, stored
from benchmarks.throughput import STEPS

THINK = STEPS * FULL.latency
"""Seconds of an episode in which a model answers."""
EACH = FULL.at_once // FULL.nodes
"""Episodes of a worker at the same time."""
RECALL, TRAJECTORY, REPLIES = 0.25, 0.25, 0.5
"""What an episode's service is spent on, by a profile (docs/LOG.md, 2026-11-28: third attempt of `scale_3`)."""
WORKERS = (1, 4, 10, 30, 100, 300, 1000)
RECORDS = 100_000
BATCH = 8
"""Episodes of the batches whose commit `scale_3` timed."""
RAY = f"Ray, {FULL.nodes} nodes, {FULL.at_once} episodes at a time"
CHECKS = ((f"one process, {FULL.at_once} episodes at a time", FULL.at_once), ("one episode at a time (control)", 1))


@dataclass(frozen=True)
class Station:
    """What serves one episode at a time, first come, first served."""

    name: str
    demand: float
    """Seconds of service that an episode takes there, all its visits together."""
    alike: int = 1
    """How many such stations share the episodes evenly."""


@dataclass(frozen=True)
class Kind:
    """A kind of run."""

    name: str
    recall: float | None = None
    """Seconds of a recall; None = as among the few records of the fit."""
    commit: float = 0.0
    """Seconds for each episode of a batch between its last episode's end and its commit; 0 = nothing is learned."""


def throughput(stations: Sequence[Station], think: float, customers: int) -> float:
    """Return episodes per second with so many under way for ever, by exact mean value analysis.

    Who arrives meets the queue that one customer fewer would leave; Little's law makes rates and queues of that.
    """
    queues, rate = [0.0] * len(stations), 0.0
    for present in range(1, customers + 1):
        stays = [each.demand * (1 + queue / each.alike) for each, queue in zip(stations, queues, strict=True)]
        rate = present / (think + sum(stays))
        queues = [rate * stay for stay in stays]
    return rate


def longest(stations: Sequence[Station]) -> float:
    """Return the seconds between two episodes that the busiest station lets through at best."""
    return max(each.demand / each.alike for each in stations)


def measured_rate(stations: Sequence[Station], think: float, customers: int, waves: int) -> float:
    """Return what `throughput.share_of_ideal` would measure: from the first episode's end to that of the last.

    All begin at the same moment, so the busiest station tells them apart, and they end as far apart.
    """
    count = (waves - 1) * customers
    return count / (count / throughput(stations, think, customers) + (customers - 1) * longest(stations))


def batch_rate(stations: Sequence[Station], think: float, batch: int, commit: float) -> float:
    """Return episodes per second where each batch begins when the one before it is committed."""
    acting = think + sum(each.demand for each in stations) + (batch - 1) * longest(stations)
    return batch / (acting + batch * commit)


def fitted(rate: float, think: float, customers: int, waves: int) -> float:
    """Return the seconds at a single station with which `measured_rate` is `rate`, by bisection."""
    low, high = 0.0, 1 / rate
    for _ in range(50):
        middle = (low + high) / 2
        too_fast = measured_rate([Station("all", middle)], think, customers, waves) > rate
        low, high = (middle, high) if too_fast else (low, middle)
    return high


def stations_of(kind: Kind, demand: float, workers: int) -> list[Station]:
    """Return the stations of a run whose processes have processors of their own."""
    recall = RECALL * demand if kind.recall is None else kind.recall
    return [
        Station("the run's own process", recall + TRAJECTORY * demand),
        Station("the database's writer", (TRAJECTORY + REPLIES) * demand),
        Station("the workers", REPLIES * demand, workers),
    ]


def predicted(kind: Kind, demand: float, workers: int) -> float:
    """Return episodes per second with so many workers; a run that learns has batches as large as they hold."""
    stations, at_once = stations_of(kind, demand, workers), workers * EACH
    return batch_rate(stations, THINK, at_once, kind.commit) if kind.commit else throughput(stations, THINK, at_once)


def limits(kind: Kind, demand: float) -> list[dict[str, Any]]:
    """Return what limits a run, one limit after the other taken away: its name, the most episodes per second it allows,
    and the workers from which on it does (where the bounds of few and of many customers cross).
    """
    stations = stations_of(kind, demand, 1)
    alone = THINK + sum(each.demand for each in stations)
    shared = sorted(stations[:-1], key=lambda each: each.demand, reverse=True)  # more workers share their own work
    most = [(each.name, 1 / each.demand) for each in shared]
    if kind.commit:
        most.insert(0, ("the committer", 1 / (kind.commit + shared[0].demand)))
    return [{"name": name, "most": rate, "workers": math.ceil(alone * rate / EACH)} for name, rate in most]


def checks(rows: Rows, demand: float) -> list[dict[str, Any]]:
    """Return what the fit says of runs that it was not fitted to, beside what was measured of them."""
    single = [Station("all", demand)]
    few = measured_rate(single, 0.8, 16, 3)
    known = [(name, find(rows, f"{name}: episodes a second")["measured"], at_once) for name, at_once in CHECKS]
    told = [(name, rate, measured_rate(single, THINK, at_once, FULL.waves)) for name, rate, at_once in known]
    told += [
        ("one process, 16 episodes at a time, calls of 0.2 s (LOG)", 0.91 * 16 / 0.8, few),
        ("Ray, 2 nodes, 16 episodes at a time, calls of 0.2 s (LOG)", 0.86 * 16 / 0.8, few),
        ("one process, 256 episodes at a time, calls of no time (LOG)", 1280 / 9.6, throughput(single, 0, 256)),
    ]
    return [{"name": name, "measured": rate, "predicted": said, "error": said / rate - 1} for name, rate, said in told]


def model() -> dict[str, Any]:
    """Return fit, checks, predictions and limits; seconds and episodes per second."""
    rows, recalls = stored()["scale_3_throughput"], stored()["scale_4_recall"]
    demand = fitted(find(rows, f"{RAY}: episodes a second")["measured"], THINK, FULL.at_once, FULL.waves)
    recall = find(recalls, f"PostgreSQL + pgvector, {RECORDS:,} records, exact (control): recall, p50 ms")["measured"]
    commit = find(rows, f"PostgreSQL, {RECORDS} records: ms to commit a batch")["measured"]
    evaluation = Kind(f"evaluation, {RECORDS:,} records", recall / 1000)
    learning = replace(evaluation, name=f"learning, {RECORDS:,} records", commit=commit / 1000 / BATCH)
    kinds = (Kind("evaluation, few records"), evaluation, learning)
    return {
        "demand": demand,
        "checks": checks(rows, demand),
        "stations": {kind.name: [asdict(each) for each in stations_of(kind, demand, 1)] for kind in kinds},
        "table": [
            {"workers": count, "ideal": count * EACH / THINK}
            | {kind.name: predicted(kind, demand, count) for kind in kinds}
            for count in WORKERS
        ],
        "limits": {kind.name: limits(kind, demand) for kind in kinds},
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the model as the tables of docs/guides/scale.md."""
    kinds = list(found["limits"])
    lines = [f"Fitted to `{RAY}`: {1000 * found['demand']:.1f} ms of service an episode. Episodes a second:", ""]
    lines += ["| it was not fitted to | measured | predicted | error, % |", "|---|---|---|---|"]
    for each in found["checks"]:
        told = f"{each['measured']:.3g} | {each['predicted']:.3g} | {100 * each['error']:+.1f}"
        lines.append(f"| {each['name']} | {told} |")
    lines += ["", f"| workers | ideal | {' | '.join(kinds)} |", f"|---|---|{'---|' * len(kinds)}"]
    for row in found["table"]:
        lines.append(f"| {row['workers']:,} | {' | '.join(f'{row[name]:,.0f}' for name in ('ideal', *kinds))} |")
    lines += ["", "| a run | is limited first by | without that limit, by |", "|---|---|---|"]
    for kind in kinds:
        told = ["{name}: {most:.0f} a second, from {workers} workers on".format(**at) for at in found["limits"][kind]]
        lines.append(f"| {kind} | {told[0]} | {told[1]} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="all of it as JSON, in seconds")
    as_json = parser.parse_args().json
    print(json.dumps(model(), indent=2) if as_json else markdown(model()).rstrip())


if __name__ == "__main__":
    main()
