"""Names in the configuration become objects: one that ships here, or `module:attribute` of the user's own."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evolve.errors import ConfigError
from evolve.usercode import users
from memory import objects
from memory.errors import NotFound

EXTRAS = {
    "pocket": "pocket",
    "local": "pocket",
    "openai": "openai",
    "served": "openai",
    "langchain": "langchain",
    "tools": "langchain",
    "bfcl": "bfcl",
    "sentence": "embed",
    "wordllama": "wordllama",
}
"""What ships here and needs packages that the core does without -> the extra that brings them."""


def load_object(name: str) -> Any:
    """Return `module:attribute`. Raises `ConfigError` unless both exist, `UserCodeError` for a bug in the module."""
    try:
        with users(f"importing {name!r}"):
            return objects.load_object(name)
    except NotFound as missing:
        raise ConfigError(str(missing)) from missing


def check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Raise `ConfigError` unless a name is one that ships here, or an object of the user's; nothing is built."""
    if ":" in name:
        load_object(name)
        return
    names = sorted(known)
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise ConfigError(f"no {what} {name!r}{meant}; there are {', '.join(names)}, or give `module:attribute`")


def choose(what: str, name: str, known: Mapping[str, Callable[[], Any]], own: Callable[[Any], Any]) -> Any:
    """Return what a name stands for: a shipped builder's result, or `own` of the user's object."""
    check_name(what, name, known)
    if ":" in name:
        with users(f"{what} {name!r}"):
            return own(load_object(name))
    try:
        return known[name]()
    except ModuleNotFoundError as missing:
        if name not in EXTRAS:
            raise
        raise ConfigError(
            f"{what} {name!r} needs the package {missing.name!r}: pip install 'evolve-agents[{EXTRAS[name]}]'"
        ) from missing
