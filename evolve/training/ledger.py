"""Contents of a training's folder: checkpoints, what it was trained on, its figures, and why it was stopped.

A line of `history.jsonl` or `metrics.jsonl` names the iteration (or, without rollouts, the pass) that it belongs to.
What no checkpoint knows is dropped when a training goes on, and so is a line that was not finished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolve.generations.workspace_registry import FOLDER as GENERATIONS
from evolve.generations.workspace_registry import TRAININGS as FOLDER

CHECKPOINT, GOOD = "checkpoint.pt", "good.pt"
"""The latest weights, and the latest that acted within the limits of `training.guards`."""
HISTORY, METRICS, STOPPED = "history.jsonl", "metrics.jsonl", "stopped.txt"
NOTHING = "nothing.txt"
"""Why a training that ended has nothing to publish."""
LOCK = ".lock"
"""Held by the process that does the training."""
MATCHED = "matched.jsonl"
"""What matched groups came to (`training.ab_groups`)."""
REUSED = "reuse.jsonl"
"""Groups that later iterations may learn from again (`training.reuse`)."""


def folders(workspace: Path) -> list[Path]:
    """Return the folders of a workspace's trainings, the oldest first."""
    return sorted((workspace / GENERATIONS / FOLDER).glob("*"), key=lambda path: path.stat().st_mtime)


def folder_of(workspace: Path, name: str) -> Path:
    """Return the folder of a training by its name, which may not be there yet."""
    return workspace / GENERATIONS / FOLDER / name


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the finished lines, none where there is no file."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.split("\n") if line]


def keep(path: Path, done: int, by: str = "iteration") -> None:
    """Drop the lines whose `by` is `done` or later."""
    if path.exists():
        write(path, "".join(json.dumps(line) + "\n" for line in lines(path) if line[by] < done))


def cut(path: Path) -> None:
    """Cut off what was written of a line when the process ended."""
    if path.exists():
        data = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def write(path: Path, text: str) -> None:
    """Write a file, all or nothing."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def stopped(folder: Path) -> str:
    """Return why a guard stopped a training, empty where none did."""
    return _said(folder / STOPPED)


def nothing(folder: Path) -> str:
    """Return why a training has nothing to publish, empty where it has, or goes on."""
    return _said(folder / NOTHING)


def _said(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
