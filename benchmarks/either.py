"""Lets a script import modules by the names they have here under the source that the audit read (69e46c8) too.

There these modules have other names. Imported first, this gives each the name that it has now, and does nothing where
it has it already. What is imported is that source's own module; nothing of it is replaced.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

MOVED = {
    "evolve.environments.office.entities": "evolve.environments.office.names",
    "evolve.environments.office.house_rules": "evolve.environments.office.rules",
    "evolve.environments.office.tables": "evolve.environments.office.state",
    "evolve.episode.rollout": "evolve.rollout",
    "evolve.episode.trust": "evolve.trust",
    "evolve.gates.context": "evolve.gates.measured",
    "evolve.loop.assembly": "evolve.app",
    "evolve.statistics.partial_progress": "evolve.statistics.progress",
    "playbooks.kinds.bullet": "playbooks.bullets",
}
"""Name of a module here -> its name there."""
RENAMED = {"evolve.episode.rollout": {"RolloutConfig": "Acting"}}
"""Name of a module here -> name of a thing in it here -> its name there."""


def exists(module: str) -> bool:
    """Tell whether the source that is imported has a module of this name."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # it has not even the package
        return False


def name_as_here() -> None:
    """Give the modules of older source the names that they have here."""
    for here, there in MOVED.items():
        if not exists(here):
            module = import_module(there)
            for new, old in RENAMED.get(here, {}).items():
                setattr(module, new, getattr(module, old))
            sys.modules[here] = module


name_as_here()
