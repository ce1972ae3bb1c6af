"""Cost of a step of online training in a workspace whose journal holds many episodes.

    python -m benchmarks.rl_journal [--episodes 0 5000 20000] [--steps 6]

Each workspace trains `evolve train grpo` in steps of two tasks done twice: small, so that a cost of the journal shows.
The last line printed is a JSON object: for each number of episodes, processor and wall seconds of each step after the
first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from evolve.config.model import Config
from evolve.loop.assembly import make_environment, open_store
from evolve.training.training_session import train
from memory.records import Outcome, Step, Trajectory


def configured(root: Path, steps: int) -> Config:
    """Return a workspace's configuration."""
    return Config.model_validate(
        {
            "root": str(root),
            "policy": {"name": "pocket", "max_tokens": 80},
            "environment": {"name": "office", "deployment": 640, "max_steps": 6},
            "memory": {"index": "exact"},
            "train": {
                "advantages": "grpo",
                "filter": "everything",
                "echo": 0.1,  # groups that earned the same teach something too
                "length": 1,
                "skills": False,
                "iterations": steps,
                "chains": 2,
                "rollouts": 2,
                "rank": 4,
            },
        }
    )


def fill(config: Config, episodes: int) -> None:
    """Put so many graded episodes of four steps into the journal, with their model calls."""
    tasks = make_environment(config).tasks("train")
    with open_store(config, len) as store:
        for number in range(episodes):
            task = tasks[number % len(tasks)]
            steps = tuple(
                Step(index=at, action=f"print({number * at})", observation=str(number * at), reply_key=f"{number}/{at}")
                for at in range(4)
            )
            for step in steps:
                store.put_reply(step.reply_key, {"reply": {"text": step.action}}, task_id=task.id)
            done = Outcome(success=number % 2 == 0, reward=float(number % 2 == 0))
            store.add_trajectory(Trajectory(id=f"e{number}", task=task, steps=steps, outcome=done, run_id="filled"))


def measure(episodes: int, steps: int) -> tuple[list[float], list[float]]:
    """Return processor and wall seconds of each step after the first."""
    ends: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        config = configured(Path(folder), steps)
        fill(config, episodes)
        train(config, "grpo", lambda _: ends.append((time.process_time(), time.perf_counter())))
    processor, wall = np.diff(ends, axis=0).T.tolist()
    return processor, wall


def main() -> None:
    """Measure all sizes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, nargs="+", default=[0, 5000, 20_000])
    parser.add_argument("--steps", type=int, default=6)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps({str(size): measure(size, given.steps) for size in given.episodes}))


if __name__ == "__main__":
    main()
