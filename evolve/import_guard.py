"""Notices a foreign module that stands in front of one of our packages on `sys.path`.

Agent projects often have a `memory.py` or a folder `skills/` of their own. Python would import that one, and fail far
from the cause. This module imports nothing of ours, so that it works exactly then.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SIBLINGS = ("memory", "skills", "policies", "playbooks")


def refuse_shadowed_packages() -> None:
    """Raise `ImportError` in one sentence when a name of ours would import, or has imported, somebody else's module."""
    home = Path(__file__).resolve().parents[1]
    for name in SIBLINGS:
        found = _location(name)
        if found is not None and found != home / name / "__init__.py":
            raise ImportError(
                f"`import {name}` finds {str(found)!r} instead of evolve's own package {str(home / name)!r}: rename "
                f"yours, or start Python from another folder (evolve needs the names {', '.join(SIBLINGS)}).",
                name=name,
                path=str(found),
            )


def _location(name: str) -> Path | None:
    """Return the file that `name` stands for; None for a module without one (a missing one fails on its own import)."""
    module = sys.modules.get(name)
    spec = module.__spec__ if module is not None else importlib.util.find_spec(name)
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None
