"""The figures of a training, handed to a tracker of experiments: the trainer knows none of them.

They are read from `metrics.jsonl`, so that a training can be exported while it goes on, and again: each time is a run
of its own there. Followed, from another process (`export`) or from its own (`tracked`), a training hands over each line
as soon as it is there; a tracker that fails stops no training.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import chain
from threading import Event, Thread
from typing import Literal, Protocol

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.registry import member
from evolve.training import ledger, resumption, trackers
from evolve.training.ledger import LOCK
from evolve.training.status import told_by
from memory.errors import NotFound
from memory.locks import is_held

_log = logging.getLogger(__name__)

Tracker = Literal["trackio", "mlflow"]
"""A file of `evolve/training/trackers`."""
POLL_S = 1.0
"""How often a training is looked at that is followed."""
LAST_S = 30.0
"""Seconds that a training waits at its end for a tracker to take what is left."""


class TrackedRun(Protocol):
    """A run that a tracker began."""

    where: str
    """Where it is to be seen."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Add the figures of an iteration or an update."""
        ...

    def close(self) -> None:
        """End the run."""
        ...


def require_tracker(name: Literal["", Tracker]) -> None:
    """Raise `ConfigError` for a tracker of which a package is missing; empty = none is wanted."""
    needed = member(trackers, name).packages() if name else ()
    for package in needed:
        if find_spec(package) is None:
            raise ConfigError(f"{name} needs the package {package!r}: pip install 'evolve-agents[track]'")


def export(config: Config, name: str, to: Tracker, *, follow: bool = False) -> str:
    """Hand a training's figures and its `[train]` to a tracker; return where they are.

    `follow`: go on until no process does that training any more.
    Raises `NotFound` for a training that is not there or told none, `ConfigError` where the tracker is missing.
    """
    lock = ledger.folder_of(config.workspace, name) / LOCK
    return _handed(config, name, to, (lambda: is_held(lock)) if follow else lambda: False)


@contextmanager
def tracked(config: Config, name: str) -> Generator[None]:
    """Hand a training's figures to `train.tracker`, where one is named, while this process does it.

    A tracker that fails is warned of once. The training does not stop for it, and waits at its end `LAST_S` at most.
    """
    ended, to = Event(), config.train.tracker
    if not to:
        yield
        return

    def follow() -> None:
        try:
            _handed(config, name, to, lambda: not ended.is_set())
        except NotFound:
            return  # it told no figure
        except Exception as failure:  # whatever a tracker does wrong, the training is worth more
            _log.warning(
                "%s failed and gets no more figures; the training goes on, `evolve train export %s --to %s` hands them "
                "over later: %r",
                to,
                name,
                to,
                failure,
            )

    following = Thread(target=follow, name=f"{to} of {name}", daemon=True)
    following.start()
    try:
        yield
    finally:
        ended.set()
        following.join(LAST_S)
        if following.is_alive():
            _log.warning(
                "%s took no figures for %g s; `evolve train export %s --to %s` does later", to, LAST_S, name, to
            )


def _handed(config: Config, name: str, to: Tracker, under_way: Callable[[], bool]) -> str:
    """Hand over the figures that are there, and those that come while the training is `under_way`. As `export`."""
    told = _followed(config, name, under_way)
    first = next(told)
    require_tracker(to)
    begun = resumption.begun(ledger.folder_of(config.workspace, name))
    settings = {"recipe": begun.recipe, "start": begun.start, **begun.config.get("train", {})} if begun else {}
    run: TrackedRun = member(trackers, to)(config.workspace, name, settings)
    over = "iteration" if "iteration" in first else "update"
    try:
        for line in chain((first,), told):
            run.log(int(line[over]), {key: value for key, value in line.items() if key != over})
    finally:
        run.close()
    return run.where


def _followed(config: Config, name: str, under_way: Callable[[], bool]) -> Iterator[dict[str, float]]:
    """Yield the lines of a training as they come. One that is done again after a kill is not yielded again."""
    metrics = ledger.folder_of(config.workspace, name) / ledger.METRICS
    sent = 0
    while True:
        more = under_way()
        lines = ledger.lines(metrics) if more or sent else told_by(config, name)
        yield from lines[sent:]
        sent = max(sent, len(lines))
        if not more:
            return
        time.sleep(POLL_S)
