"""The rollouts of a training, kept to be read: who did which task, what was said, what was paid and learned from it.

`rollouts/<iteration>.jsonl` in the training's folder has a line for each episode of a batch. Whole is the latest
iteration only; of each before it at most `SAMPLE` episodes stay, whole groups whose rewards differ first. A text longer
than `TEXT` characters loses its middle. Secrets are redacted, and a purge of what is to be forgotten removes all files.
A file is written at once and under its iteration's number, so that one that is done again after a kill is not there
twice. Trainings on the journal have their episodes there; `trl_async` keeps none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from evolve.config.model import Config
from evolve.generations.workspace_registry import FOLDER as GENERATIONS
from evolve.training import ledger
from evolve.training.replies import sweep
from memory.errors import NotFound
from memory.records import Frozen, Step, StopReason
from policies.protocols import Message

FOLDER = "rollouts"
SAMPLE = 16
"""Episodes that are kept of an iteration when the next is done."""
TEXT = 8_000
"""Most characters of a message, an action or an observation."""


class RolloutTurn(Frozen):
    """One reply, and what came of it."""

    steps: tuple[Step, ...]
    """The actions that it asked for, with what they brought; the first one's `reply` is the whole, where it is more."""
    tokens: int
    version: str = ""
    """Weights that sampled it."""
    truncated: bool = False
    """The token limit cut it off."""
    advantage: float | None = None
    """What each of its tokens was trained with; None = it was not trained on."""


class StoredRollout(Frozen):
    """One episode of a batch."""

    id: str
    iteration: int
    task: str
    group: str
    """Whose rewards are compared: those of one position of one chain, under one knowledge."""
    position: int
    """Of its task in the chain, from 0."""
    rollout: int
    """Number of the member of its group."""
    rewards: dict[str, float]
    """Parts of the reward by name."""
    success: bool
    graded: bool
    stop: StopReason
    error: str | None = None
    prompt: tuple[Message, ...] = ()
    """What was said before its first reply."""
    turns: tuple[RolloutTurn, ...] = ()

    @property
    def reward(self) -> float:
        """The sum of its parts."""
        return sum(self.rewards.values())

    @property
    def tokens(self) -> int:
        """How many tokens the policy wrote."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def advantage(self) -> float | None:
        """The mean advantage of the tokens that were trained on; None where none was."""
        trained = [(turn.tokens, turn.advantage) for turn in self.turns if turn.advantage is not None]
        tokens = sum(size for size, _ in trained)
        return sum(size * own for size, own in trained) / tokens if tokens else None

    @property
    def versions(self) -> tuple[str, ...]:
        """The weights that sampled it, in order."""
        return tuple(dict.fromkeys(turn.version for turn in self.turns if turn.version))


def write(folder: Path, iteration: int, rollouts: Sequence[StoredRollout]) -> None:
    """Keep an iteration's rollouts, and of the one before a sample."""
    (folder / FOLDER).mkdir(exist_ok=True)
    _put(_file(folder, iteration), rollouts)
    if (before := _file(folder, iteration - 1)).exists():
        _put(before, sampled(_read(before)))


def drop(folder: Path, done: int) -> None:
    """Remove what iterations rolled out that will be done again: number `done` and later."""
    for iteration in iterations(folder):
        if iteration >= done:
            _file(folder, iteration).unlink()


def erase(workspace: Path) -> None:
    """Remove the rollouts and replies of all trainings of a workspace: any of them may quote what was forgotten.

    A training that goes on has none to reuse or to replay then: it rolls out more, and its iteration anew.
    """
    place = workspace / GENERATIONS / ledger.FOLDER
    for file in (*place.glob(f"*/{FOLDER}/*.jsonl"), *place.glob(f"*/{ledger.REUSED}")):
        file.unlink()
    for folder in ledger.folders(workspace):
        sweep(folder, ())


def sampled(rollouts: Sequence[StoredRollout], most: int = SAMPLE) -> list[StoredRollout]:
    """Return at most so many, whole groups where they fit, those whose rewards differ first, in the order given."""
    groups: dict[str, list[StoredRollout]] = {}
    for each in rollouts:
        groups.setdefault(each.group, []).append(each)
    taken: set[str] = set()
    for some in sorted(groups.values(), key=lambda some: len({each.reward for each in some}) == 1):
        if not taken or len(taken) + len(some) <= most:
            taken |= {each.id for each in some[:most]}
    return [each for each in rollouts if each.id in taken]


def iterations(folder: Path) -> list[int]:
    """Return the iterations of a training of which rollouts are kept, in order."""
    return sorted(int(file.stem) for file in (folder / FOLDER).glob("*.jsonl"))


def read(folder: Path, iteration: int | None = None) -> list[StoredRollout]:
    """Return the rollouts that a training kept, of one iteration or of all, in order."""
    chosen = iterations(folder) if iteration is None else [iteration]
    return [each for number in chosen if _file(folder, number).exists() for each in _read(_file(folder, number))]


def keeping(config: Config, name: str | None = None) -> Path:
    """Return the folder of a training that keeps rollouts; the latest, where none is named. Raises `NotFound`."""
    places = {each.name: each for each in ledger.folders(config.workspace)}
    found = [each for each in places if iterations(places[each])]
    chosen = name or next(reversed(found), "")
    if chosen not in found:
        wanted = f"training {name!r} keeps no rollouts" if name else "no training keeps rollouts"
        raise NotFound(f"{wanted}; those that do: {', '.join(found) or 'none'} (`evolve train status`)")
    return places[chosen]


def find(folder: Path, name: str) -> StoredRollout:
    """Return one rollout of a training by its id. Raises `NotFound`."""
    found = next((each for each in read(folder) if each.id == name), None)
    if found is None:
        raise NotFound(
            f"training {folder.name!r} keeps no rollout {name!r}; `evolve train rollouts list {folder.name}` names "
            f"those it keeps: all of its latest iteration, at most {SAMPLE} of each before"
        )
    return found


def _file(folder: Path, iteration: int) -> Path:
    return folder / FOLDER / f"{iteration}.jsonl"


def _read(file: Path) -> list[StoredRollout]:
    return [StoredRollout.model_validate(line) for line in ledger.lines(file)]


def _put(file: Path, rollouts: Iterable[StoredRollout]) -> None:
    ledger.write(file, "".join(each.model_dump_json(exclude_defaults=True) + "\n" for each in rollouts))
