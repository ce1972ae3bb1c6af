"""Progress of the trainings of a workspace, read from what they left on disk."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from evolve.config.model import Config
from evolve.training import ledger
from memory.errors import NotFound


def trainings(config: Config) -> list[dict[str, Any]]:
    """Return how far each training of the workspace came, the oldest first, with its last figures."""
    return [_standing(each) for each in ledger.folders(config.workspace)]


def told_by(config: Config, name: str) -> list[dict[str, float]]:
    """Return the figures of a training. Raises `NotFound` for one that is not there or has told none."""
    found = ledger.lines(ledger.folder_of(config.workspace, name) / ledger.METRICS)
    if not found:
        known = ", ".join(row["training"] for row in trainings(config)) or "none"
        raise NotFound(f"no training {name!r} with figures; there are {known}: see `evolve train status`")
    return found


def written(config: Config) -> tuple[tuple[str, int], ...]:
    """Return each training that has told figures, with the time of its last write in nanoseconds."""
    found: list[tuple[str, int]] = []
    for folder in sorted(ledger.folders(config.workspace)):
        with suppress(FileNotFoundError):  # it has told none, or was removed just now
            found.append((folder.name, (folder / ledger.METRICS).stat().st_mtime_ns))
    return tuple(found)


def _standing(folder: Path) -> dict[str, Any]:
    told = ledger.lines(folder / ledger.METRICS)
    last = told[-1] if told else {}
    by = next((name for name in ("iteration", "epoch") if name in last), "")
    return {
        "training": folder.name,
        "done": f"{int(last[by]) + 1} {by}s" if by else "nothing",
        "state": _state(folder),
        "figures": last,
    }


def _state(folder: Path) -> str:
    if stopped := ledger.stopped(folder):
        return f"stopped: {stopped}"
    if nothing := ledger.nothing(folder):
        return f"nothing to publish: {nothing}"
    return "finished" if (folder / "adapter").exists() else "unfinished: `evolve train resume` goes on"
