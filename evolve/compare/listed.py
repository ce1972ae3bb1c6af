"""A comparison as a run of the workspace that it was started from: where its lives are, and what it came to."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evolve.compare.arms import Arm
from evolve.compare.comparison import Comparison
from evolve.compare.conduct import Watch
from evolve.compare.plan import Plan, Replicate
from evolve.config.model import Config
from evolve.loop.assembly import open_store
from evolve.loop.lives import BEGUN, ENDED, Life
from evolve.loop.runs import COMPARE, DONE
from evolve.loop.sessions import Session, session_record
from evolve.progress import Observer, Observers, Progress
from evolve.seeds import id_for
from memory.records import Event
from memory.store import Store

SIGN = "run.alive"
"""Event: a run that writes into other journals is still under way."""
EVERY = 600.0
"""Seconds between two of them at least."""


@contextmanager
def listed(config: Config, plan: Plan, folder: Path) -> Generator[Listing]:
    """List a comparison among the runs of a workspace while it is under way and afterwards.

    One that is done already stays as it is listed.
    """
    run_id = id_for("cmp", plan.digest, str(folder.resolve()))
    with open_store(config, owner=False) as store:
        known = store.get_run(run_id) or {}
        listing = Listing(store, run_id, watched=known.get("status") != DONE)
        if not listing.watched:
            yield listing
            return
        record = session_record(run_id, COMPARE, config).model_copy(
            update={
                "policy": ", ".join(
                    dict.fromkeys(str(arm.config["policy"]["name"]).rpartition(":")[2] for arm in plan.compared)
                ),
                "environment": ", ".join(dict.fromkeys(replicate.world for replicate in plan.replicates)),
                "folder": _within(folder, config.workspace),
            }
        )
        session = Session(store, record)
        session.begin()
        try:
            listing.begun(plan, folder, config)
            yield listing
        except BaseException as error:
            session.end(error)
            raise
        session.end()


class Listing:
    """What is journalled of one comparison."""

    def __init__(self, store: Store, run_id: str, *, watched: bool) -> None:
        self._store, self.run_id, self.watched = store, run_id, watched
        self._signed = time.monotonic()

    def begun(self, plan: Plan, folder: Path, config: Config) -> None:
        """Journal where its lives are."""
        lives = [
            Life(arm=arm.name, replicate=each.name, database=_within(life.workspace, config.workspace), tag=plan.tag)
            for each in plan.replicates
            for arm in plan.arms
            for life in [plan.config(folder, arm, each, frozen=True)]
        ]
        named = [life.model_copy(update={"database": f"{life.database}/evolve.db"}) for life in lives]
        self._append(BEGUN, {"lives": [life.model_dump() for life in named], "command": plan.command})

    def ended(self, found: Comparison) -> None:
        """Journal what it came to, once."""
        if self.watched:
            contrasts = [each.model_dump(mode="json", exclude={"lives"}) for each in found.contrasts]
            arms = [each.model_dump(mode="json", exclude={"differs"}) for each in found.arms]
            self._append(ENDED, {"split": found.split, "n": found.n, "arms": arms, "contrasts": contrasts})

    def watch(self, watch: Watch) -> Watch:
        """Return what also journals signs of life."""

        def both(replicate: Replicate, arm: Arm) -> Observer:
            return Observers([watch(replicate, arm), _Signs(self._sign)])

        return both

    def _sign(self) -> None:
        if self.watched and time.monotonic() - self._signed > EVERY:
            self._signed = time.monotonic()
            self._append(SIGN, {})

    def _append(self, kind: str, data: dict[str, Any]) -> None:
        self._store.append(Event(type=kind, run_id=self.run_id, subject=self.run_id, data=data))


class _Signs:
    """Tells a listing that something happened."""

    def __init__(self, sign: Callable[[], None]) -> None:
        self._sign = sign

    def notify(self, event: Progress) -> None:
        self._sign()


def _within(path: Path, workspace: Path) -> str:
    """Return a path relative to the workspace where it lies inside, else the whole of it."""
    path, workspace = path.resolve(), workspace.resolve()
    return str(path.relative_to(workspace) if path.is_relative_to(workspace) else path)
