"""Episodes of comparisons, read from the journals of their lives: each life is a workspace of its own in a folder.

The workspace that a comparison was started from journals where its lives are; a folder that was deleted since has none
to read, and then the figures that were journalled are all that is left.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from memory import episodes, paging, runlist
from memory.embedders.hashing import HashingEmbedder
from memory.journal import Journal
from memory.paging import EpisodeLine
from memory.records import Frozen, Trajectory
from memory.runlist import RunFilter
from memory.store import Store

BEGUN, ENDED = "comparison.begun", "comparison.ended"
"""Events of a comparison's run: where its lives are, and what it came to."""


class Life(Frozen):
    """Where one arm lives in one replicate."""

    arm: str
    replicate: str
    database: str
    """Relative to the workspace where it lies inside."""
    tag: str
    """Of the runs that belong to it; a workspace that was copied brings others along."""


class Compared(Frozen):
    """What a comparison came to, as its end was journalled."""

    split: str
    n: int
    """Pairs of episodes of each contrast."""
    arms: tuple[dict[str, Any], ...]
    """`evolve.compare.comparison.ArmFigures` of each arm, what it differs in left out."""
    contrasts: tuple[dict[str, Any], ...]
    """`evolve.compare.comparison.Contrast` of each, the lives left out."""
    folder: str
    """Where its reports and lives are, relative to the workspace where it lies inside."""


def compared(store: Store, run_id: str) -> Compared | None:
    """Return what a comparison came to; None for one that is not done, and for a run that is none."""
    ended = store.events(type=ENDED, run_id=run_id)
    if not ended or "arms" not in ended[-1].data:
        return None
    folder = (store.get_run(run_id) or {}).get("folder", "")
    return Compared.model_validate({**ended[-1].data, "folder": folder})


def compared_lines(found: Compared) -> list[str]:
    """Return a comparison as text for people."""
    said = [f"{found.n} pairs on {found.split}; the whole report: {found.folder}/report.md"]
    for arm in found.arms:
        low, high = arm["interval"]["low"], arm["interval"]["high"]
        said.append(f"{arm['name']:<40} {arm['rate']:6.1%} [{low:.0%}, {high:.0%}]  n={arm['episodes']}")
    for each in found.contrasts:
        d = each["difference"]
        said.append(
            f"{each['candidate']} minus {each['base']}: {100 * d['delta']:+.1f} points "
            f"[{100 * d['low']:+.1f}, {100 * d['high']:+.1f}], p = {d['p']:.2g}"
        )
    return said


def lives_of(store: Store, run_id: str) -> tuple[Life, ...]:
    """Return the lives of a comparison; none for a run that is no comparison."""
    begun = store.events(type=BEGUN, run_id=run_id)
    return tuple(Life.model_validate(life) for life in begun[-1].data.get("lives", ())) if begun else ()


def life_episodes(store: Store, run_id: str) -> list[EpisodeLine]:
    """Return the episodes of a comparison that can be read, life by life; each arm says whose it is."""
    found: list[EpisodeLine] = []
    for life in lives_of(store, run_id):
        with _opened(store, life) as journal:
            if journal is not None:
                found += _episodes(journal, life)
    return found


@contextmanager
def life_with(store: Store, episode_id: str) -> Generator[tuple[Store, str] | None]:
    """Give the store of the life that an episode is in, and the run of its comparison; None where there is none."""
    place = _place(store, episode_id)
    if place is None:
        yield None
        return
    file, run_id = place
    embedder = HashingEmbedder()  # nothing is searched here
    with Store.open(file, embedder=embedder, index="exact", read_only=True, count_tokens=store.count_tokens) as opened:
        yield opened, run_id


def _place(store: Store, episode_id: str) -> tuple[Path, str] | None:
    for event in reversed(store.events(type=BEGUN)):
        for life in lives_of(store, event.run_id):
            with _opened(store, life) as journal:
                if journal is not None and episodes.find(journal, Trajectory, "trajectories", id=episode_id):
                    return _file(store, life), event.run_id
    return None


def _episodes(journal: Journal, life: Life) -> list[EpisodeLine]:
    runs, _ = runlist.runs(journal, RunFilter(tag=life.tag), limit=-1)
    found: list[EpisodeLine] = []
    for run in reversed(runs):
        names = [run.run_id, *(name for _, name in runlist.evaluations(journal, (run.run_id,)))]
        what = "judged" if run.kind == runlist.KINDS["frozen"] else "learning"
        lines: Sequence[EpisodeLine] = paging.episodes(journal, names)
        found += [replace(line, arm=f"{life.arm}, {what}, {life.replicate}") for line in lines]
    return found


@contextmanager
def _opened(store: Store, life: Life) -> Generator[Journal | None]:
    """Give the journal of a life; None where its folder is gone or it has not begun."""
    file = _file(store, life)
    if not file.is_file():
        yield None
        return
    with closing(Journal(file, read_only=True)) as journal:
        yield journal


def _file(store: Store, life: Life) -> Path:
    return store.journal.path.parent / life.database
