"""Expected success of each task: begun from the journal, then moved by the training's own rollouts.

All of it stands in the training's folder: what the journal said when the training began, and what each iteration's
rollouts came to, a part of its line in `history.jsonl`. It is read anew for each iteration, so that a training which
was killed draws the same chains as one that was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from evolve.training import ledger
from evolve.training.ledger import HISTORY
from memory.records import Trajectory
from policies.rl.tracker import BetaTracker

KNOWN, OUTCOMES = "known.json", "outcomes"
"""The file of what the journal said, and the key of a line of history."""
Counts = Mapping[str, Sequence[int]]
"""Task -> (successes, attempts)."""


def begin(folder: Path, journal: Callable[[], Counts]) -> None:
    """Keep what the journal says of tasks when a training begins; one that goes on keeps what it began with."""
    if not (folder / KNOWN).exists():
        ledger.write(folder / KNOWN, json.dumps(journal()))


def outcomes(episodes: Iterable[Trajectory]) -> dict[str, tuple[int, int]]:
    """Return for each task how many of its graded episodes succeeded, and how many there are."""
    found: dict[str, tuple[int, int]] = {}
    for episode in episodes:
        if episode.outcome is not None:
            successes, attempts = found.get(episode.task.id, (0, 0))
            found[episode.task.id] = (successes + episode.success, attempts + 1)
    return found


def estimates(folder: Path) -> BetaTracker:
    """Return what is expected of each task after the iterations in the folder's history.

    How far the policy moved between two rollouts of a task is not measured: memory fades at the tracker's slowest.
    """
    tracker = BetaTracker()
    known: Counts = json.loads((folder / KNOWN).read_text()) if (folder / KNOWN).exists() else {}
    for task, (successes, attempts) in known.items():
        tracker.start(task, successes, attempts)
    for line in ledger.lines(folder / HISTORY):
        done: Counts = line.get(OUTCOMES, {})
        for task, (successes, attempts) in done.items():
            tracker.update(task, successes, attempts=attempts)
    return tracker
