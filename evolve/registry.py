"""Names in the configuration become objects: the one resolver.

A name is one that ships here, one that another installed package adds as an entry point (`GROUPS`), or
`module:attribute` of the user's own. Where alternatives are files of a folder, a file that sets `MEMBER` is one, and
its name is the file's.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module, metadata, resources
from types import ModuleType
from typing import Any

from evolve.errors import ConfigError
from evolve.surface import DISTRIBUTION, extra_with
from evolve.usercode import users
from memory import objects
from memory.errors import NotFound

_PLURALS = {
    "environment": "environments",
    "policy": "policies",
    "embedder": "embedders",
    "reflector": "reflectors",
    "curator": "curators",
    "gate": "gates",
    "kind": "kinds",
}
GROUPS: Mapping[str, str] = {one: f"evolve.{many}" for one, many in _PLURALS.items()}
"""What a name is for -> the group of entry points with which another package adds such a name."""
_MEMBER = re.compile(r"^MEMBER\b", re.MULTILINE)


def load_object(name: str) -> Any:
    """Return `module:attribute`. Raises `ConfigError` unless both exist, `UserCodeError` for a bug in the module."""
    try:
        with users(f"importing {name!r}"):
            return objects.load_object(name)
    except NotFound as missing:
        raise ConfigError(str(missing)) from missing


def members(folder: ModuleType) -> list[str]:
    """Return the names of the files (or folders) of a package that set `MEMBER`, sorted; none is imported."""
    found: list[str] = []
    for file in resources.files(folder).iterdir():
        inside = file / "__init__.py"
        source = inside if file.is_dir() else file
        if source.is_file() and source.name.endswith(".py") and _MEMBER.search(source.read_text(encoding="utf-8")):
            found.append(file.name.removesuffix(".py"))
    return sorted(found)


def member(folder: ModuleType, name: str) -> Any:
    """Return the `MEMBER` of a file of a package; the file is imported now."""
    return import_module(f"{folder.__name__}.{name}").MEMBER


def check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Raise `ConfigError` unless a name stands for something; nothing is built."""
    if ":" in name:
        load_object(name)
        return
    known = set(known)
    if name not in known and name not in (names := sorted({*known, *added(what)})):
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise ConfigError(f"no {what} {name!r}{meant}; there are {', '.join(names)}, or give `module:attribute`")


def choose(what: str, name: str, known: Mapping[str, Callable[[], Any]], own: Callable[[Any], Any]) -> Any:
    """Return what a name stands for: a shipped builder's result, or `own` of an object from elsewhere.

    Raises `ConfigError` for a name that stands for nothing and for a shipped one whose packages are not installed,
    `UserCodeError` for a bug elsewhere.
    """
    check_name(what, name, known)
    if ":" in name or name not in known:
        with users(f"{what} {name!r}"):
            return own(load_object(name) if ":" in name else added(what)[name].load())
    try:
        return known[name]()
    except ModuleNotFoundError as missing:
        extra = extra_with(missing.name or "")
        if extra is None:
            raise
        raise ConfigError(
            f"{what} {name!r} needs the package {missing.name!r}: pip install '{DISTRIBUTION}[{extra}]'"
        ) from missing


def loaded(what: str) -> dict[str, Any]:
    """Return what other installed packages add, by name, imported. Raises `UserCodeError` for a bug in one."""
    found: dict[str, Any] = {}
    for name, point in added(what).items():
        with users(f"{what} {name!r}"):
            found[name] = point.load()
    return found


def added(what: str) -> dict[str, metadata.EntryPoint]:
    """Return what other installed packages add, by name."""
    group = GROUPS.get(what)
    return {point.name: point for point in metadata.entry_points(group=group)} if group else {}
