"""`module:attribute` of a user's own becomes an object; every floor that takes such names asks here."""

from __future__ import annotations

import importlib
from typing import Any

from memory.errors import NotFound


def load_object(name: str) -> Any:
    """Return `module:attribute`. Raises `NotFound` unless both exist; an error inside the module flies."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise
        raise NotFound(f"no module {module_name!r} for {name!r}; check the spelling and PYTHONPATH") from missing
    if not hasattr(module, attribute):
        raise NotFound(f"module {module_name!r} has no {attribute!r}; expected `module:attribute`, got {name!r}")
    return getattr(module, attribute)
