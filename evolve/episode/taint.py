"""Taint: whether the author of a lesson was shown text that strangers can have written, whatever the lesson's words.

Whoever can write a mail, a file or a page that an agent reads can try to dictate a lesson, and a reflector can say it
in other words. So what counts is not what a lesson says but what its author read. An environment may declare which
texts of an episode strangers can have written (`TellsOutside`). Without that it is every opening and observation, error
messages left out: they are the environment's own voice. A task counts where its metadata says `outside`. A reflector or
curator may declare what it reads of an episode (`playbooks.protocols.TellsReading`); without that it is all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evolve.episode.prompting import AGAIN
from evolve.episode.search import SEARCH
from evolve.episode.trust import runs
from evolve.protocols import Environment, TellsOutside
from evolve.usercode import ask_list
from memory.records import Step, Trajectory
from playbooks.protocols import TellsReading

OUTSIDE = "outside"
"""Key of a task's metadata: true where strangers can have written the task."""


def outside_texts(environment: Environment, episode: Trajectory) -> tuple[str, ...]:
    """Return the texts of an episode that strangers can have written and that are long enough to say something."""
    if isinstance(environment, TellsOutside):
        found = ask_list(environment, "outside", str, episode)
    else:
        found = (episode.opening, *map(_observed, episode.steps))
    return tuple(text for text in (*_asked(episode), *found) if any(True for _ in runs(text)))


def tainted(readers: Iterable[object], environment: Environment, episode: Trajectory, *, label_free: bool) -> bool:
    """Tell whether one of the readers was shown such a text, as a whole or a run of its words."""
    outside = outside_texts(environment, episode)
    if not outside:
        return False
    written = {run for text in outside for run in runs(text)}
    for reader in readers:
        if not isinstance(reader, TellsReading):
            return True
        if any(run in written for run in runs(reader.reads(episode, label_free=label_free))):
            return True
    return False


def _asked(episode: Trajectory) -> Iterator[str]:
    if episode.task.metadata.get(OUTSIDE):
        yield episode.task.instruction


def _observed(step: Step) -> str:
    """Return an observation without its error message; what the loop itself said is nobody's."""
    if step.action.startswith(f"{SEARCH}("):
        return ""
    said = step.observation.replace(AGAIN, "")
    return "\n".join(said.split(step.error)) if step.error else said
