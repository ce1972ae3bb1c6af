"""The same office stream at batch 8 with concurrency 8 and 1, and at batch 1: how fast, how equal, how well it learns.

The scripted worker answers after a fixed latency; `rules` reflects and `direct` curates, so all waiting is for actions.
The final success is that of a frozen evaluation on test_normal with what was learned, without latency.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.outcomes import outcome_of
from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.loop.session import Parts, run


@dataclass(frozen=True)
class Stream:
    """What is worked through."""

    deployment: int
    tasks: int
    latency_s: float


@dataclass(frozen=True)
class Pass:
    """One way through the stream."""

    seconds: float
    outcome: dict[str, Any]
    tgc: float
    """Share of test_normal solved afterwards, frozen."""
    lengths: list[int]
    """Steps of each episode, in the order of the stream."""


def work(root: Path, stream: Stream, *, batch: int, concurrency: int) -> Pass:
    """Work through the stream in a new workspace under `root`, then evaluate."""
    office = Office(OfficeConfig(deployment=stream.deployment))
    config = _config(root, {"tasks": stream.tasks, "batch_size": batch, "concurrency": concurrency})
    policy = make_worker(office, stream.latency_s)
    started = time.perf_counter()
    run(config, parts=Parts(policy=policy, environment=office))
    seconds = time.perf_counter() - started
    outcome = outcome_of(config)
    frozen = _config(root, {"mode": "frozen", "eval_splits": ("test_normal",), "concurrency": 8})
    result = run(frozen, parts=Parts(policy=make_worker(office), environment=office))
    steps = {task: len(done) for task, _, _, _, done, _ in outcome["episodes"]}
    lengths = [steps[task.id] for task in office.tasks("train")[: stream.tasks]]
    return Pass(seconds, outcome, result.evaluations[0].metrics.tgc, lengths)


def _config(root: Path, section: dict[str, Any]) -> Config:
    return Config.model_validate(
        {
            "root": root,
            "run": section,
            "playbook": {"reflector": "rules", "curator": "direct"},
            "environment": {"name": "office", "max_steps": 16},
            "controls": {"no_memory": 0},
        }
    )
