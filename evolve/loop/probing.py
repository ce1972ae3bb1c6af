"""Prompts with which a generation's canary is asked: what this workspace's agent was really asked."""

from __future__ import annotations

from itertools import islice

from evolve.config.model import Config
from evolve.gates.splits import splits_there
from evolve.loop.assembly import make_environment, open_store
from memory.errors import NotFound

COUNT = 6
LONGEST = 600
"""Characters of an instruction that are taken."""


def probe_texts(config: Config) -> tuple[str, ...]:
    """Return instructions of the latest episodes in the journal, else of the environment's own tasks; each once.

    Empty where there are neither.
    """
    return tuple(text[:LONGEST] for text in _asked(config) or _tasks(config))


def _asked(config: Config) -> list[str]:
    found: dict[str, None] = {}
    try:
        with open_store(config, len, read_only=True) as store:
            for run in reversed(store.runs()):
                found |= dict.fromkeys(each.instruction for each in store.trajectories(run_id=run["run_id"]))
                if len(found) >= COUNT:
                    break
    except NotFound:  # nothing was done in this workspace yet
        return []
    return list(islice(found, COUNT))


def _tasks(config: Config) -> list[str]:
    there = splits_there(config, make_environment(config), [config.run.split])
    return list(islice(dict.fromkeys(task.instruction for tasks in there.values() for task in tasks), COUNT))
