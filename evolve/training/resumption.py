"""A training is begun by what its settings say, and gone on with by its name: the settings stand in its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field

from evolve.config.file import stored_config
from evolve.config.model import Config
from evolve.errors import RunMismatch
from evolve.loop.runs import served_today
from evolve.training import ledger
from memory.errors import NotFound
from memory.records import Frozen

FILE = "training.json"


class Begun(Frozen):
    """How a training was begun."""

    recipe: str
    journal: bool
    """On what the journal holds, not on rollouts."""
    start: str
    """The generation that it goes on from; `base` = none."""
    config: dict[str, Any] = Field(default_factory=dict)


def note(folder: Path, begun: Begun) -> None:
    """Write how a training was begun, once."""
    if not (folder / FILE).exists():
        ledger.write(folder / FILE, begun.model_dump_json(indent=2))


def begun(folder: Path) -> Begun | None:
    """Return how a training was begun; None where it does not say."""
    return Begun.model_validate_json((folder / FILE).read_text(encoding="utf-8")) if (folder / FILE).exists() else None


def unfinished(config: Config, name: str | None, ended: Callable[[Path], bool]) -> tuple[str, Begun, Config]:
    """Return a training that has not `ended`, the latest where none is named, and the configuration it was begun with.

    Where it is kept and watched, and where the servers of its rollouts are, is as `config` says. Raises `NotFound`
    where there is none, and `RunMismatch` for one that has ended, or that does not say how it was begun; and as
    `stored_config` does.
    """
    places = {place.name: place for place in ledger.folders(config.workspace)}
    left = [name for name, place in places.items() if not ended(place)]
    known = f"unfinished are: {', '.join(left) or 'none'} (`evolve train status`)"
    chosen = name or next((each for each in reversed(left) if (places[each] / FILE).exists()), None)
    if chosen is None:
        raise NotFound(f"no training to go on with; {known}")
    if chosen not in places:
        raise NotFound(f"no training {chosen!r}; {known}")
    if chosen not in left:
        why = ledger.nothing(places[chosen]) or "its candidate is published"
        raise RunMismatch(f"training {chosen!r} has ended: {why}; {known}")
    place = places[chosen]
    if not (place / FILE).exists():
        raise RunMismatch(f"training {chosen!r} keeps no {FILE}; go on with the command that began it")
    begun = Begun.model_validate_json((place / FILE).read_text(encoding="utf-8"))
    kept = stored_config(begun.config, config.root)
    where = {name: getattr(config.memory, name) for name in ("workspace", "database", "index")}
    memory = kept.memory.model_copy(update=where)
    train = kept.train.model_copy(update={"tracker": config.train.tracker})
    today: dict[str, Any] = {"memory": memory, "train": train, "telemetry": config.telemetry, "log": config.log}
    if not begun.journal:  # the journal asks no server, and is told apart by the settings
        today["policy"] = served_today(kept.policy, config.policy)
    return chosen, begun, kept.model_copy(update=today)


def require_same(folder: Path, start: str, today: str) -> None:
    """Raise `RunMismatch` where a training would not go on from what it began with: its `start`, or its journal.

    `today` is the name that the same training would get now; of one by rollouts, whose settings are all that it was
    given, its own.
    """
    begun = Begun.model_validate_json((folder / FILE).read_text(encoding="utf-8"))
    if begun.start != start:
        why = f"it goes on from {begun.start}, and {start} is live"
    elif folder.name != today:
        why = "the journal offers other episodes than when it began, or another version of evolve began it"
    else:
        return
    raise RunMismatch(f"training {folder.name!r} cannot go on: {why}; begin a new one, or bring back what was then")
