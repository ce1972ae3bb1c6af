"""Cost of tracing: the same run of the office without telemetry, with spans in the workspace, and with content.

    python -m benchmarks.telemetry [--tasks 60] [--rounds 9]

The scripted worker answers at once, so all that is measured is the framework: with a real model the share is smaller.
The arms take turns, each round in another order, in one process after a round that is not counted. `wall` and `cpu` are
seconds of a whole run, median of all rounds, `cpu` with the writing thread; the ratio is the median of the rounds' own
ratios to `off`, with the middle half of them. On a busy machine these say little: `share` is the processor time of one
span (a model call of six messages with its metrics, least of five times 2,000) times the spans, by `cpu` of `off`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from evolve.config.model import Config
from evolve.episode.instrumentation import WatchedPolicy
from evolve.loop import session
from evolve.progress import Observers
from evolve.telemetry.described import Traced
from evolve.telemetry.start import traced
from memory.sqlite.sql import sqlite3
from memory.sqlite.telemetry_file import FILE
from policies.protocols import Message, Policy, SamplingParams
from policies.scripted import ScriptedPolicy

ARMS: Mapping[str, Mapping[str, Any]] = {
    "off": {},
    "spans": {"enabled": True},
    "spans and content": {"enabled": True, "capture_content": True},
}
Times = tuple[float, float]
MESSAGES = [Message(role="user", content="Move the meeting to Monday. " * 8)] * 6


def once(telemetry: Mapping[str, Any], tasks: int) -> tuple[Times, int, int]:
    """Return wall and processor time of a run, how many spans it made, and the bytes of their file."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config.model_validate(
            {
                "root": folder,
                "run": {"tasks": tasks},
                "policy": {"name": "evolve.environments.office.worker:worker", "model": "3"},
                "environment": {"name": "office", "deployment": 3, "max_steps": 16},
                "memory": {"index": "exact"},
                "playbook": {"reflector": "rules", "curator": "direct"},
                "telemetry": telemetry,
            }
        )
        wall, cpu = time.perf_counter(), time.process_time()
        session.run(config)
        times = (time.perf_counter() - wall, time.process_time() - cpu)
        file = Path(folder) / ".evolve" / FILE
        if not file.exists():
            return times, 0, 0
        with closing(sqlite3.connect(file)) as conn:
            return times, conn.execute("SELECT count(*) FROM spans").fetchone()[0], file.stat().st_size


def per_span(telemetry: Mapping[str, Any], calls: int = 2000) -> float:
    """Return the processor seconds that the span of a model call costs, its writing included."""

    async def ask(policy: Policy) -> None:
        for _ in range(calls):
            await policy.generate(MESSAGES, SamplingParams())

    policy = WatchedPolicy(ScriptedPolicy(lambda messages, params: "yes", version="1"))
    least = [float("inf"), float("inf")]
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            for at, section in enumerate(({}, telemetry)):
                config = Config.model_validate({"root": folder, "telemetry": section})
                config.workspace.mkdir(exist_ok=True)
                with traced(config, Traced("run", "online", policy, "none"), Observers()):
                    started = time.process_time()
                    asyncio.run(ask(policy))
                least[at] = min(least[at], time.process_time() - started)
    return (least[1] - least[0]) / calls


def ratios(found: Sequence[Times], base: Sequence[Times], which: int) -> str:
    """Return the median ratio of two arms and the middle half of the rounds."""
    each = [one[which] / other[which] for one, other in zip(found, base, strict=True)]
    low, middle, high = statistics.quantiles(each, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=60, help="tasks of a run")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each arm")
    options = parser.parse_args()
    for telemetry in ARMS.values():
        once(telemetry, 4)
    found: dict[str, list[Times]] = {name: [] for name in ARMS}
    size: dict[str, tuple[int, int]] = {}
    for at in range(options.rounds):
        for name in random.Random(at).sample(list(ARMS), len(ARMS)):
            times, *sizes = once(ARMS[name], options.tasks)
            size[name] = (sizes[0], sizes[1])
            found[name].append(times)
    columns = ("telemetry", "wall s", "wall ratio", "cpu s", "cpu ratio", "spans", "file KB", "us per span", "share")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    off = statistics.median(each[1] for each in found["off"])
    for name, times in found.items():
        cells = [name]
        for which in (0, 1):
            cells.append(f"{statistics.median(each[which] for each in times):.2f}")
            cells.append(ratios(times, found["off"], which) if name != "off" else "1")
        spans, stored = size[name]
        one = per_span(ARMS[name]) if spans else 0.0
        cells += [str(spans), str(stored // 1024), f"{one * 1e6:.0f}", f"{one * spans / off:.1%}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
