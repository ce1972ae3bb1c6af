"""Finds and reads `evolve.toml`, merges the `EVOLVE_` variables over it, and says clearly what is wrong with either."""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource

from evolve.config.model import Config, EnvironmentSection, RoleSection
from evolve.config.preset import find_preset
from evolve.errors import ConfigError
from policies.roles import ROLES

FILE = "evolve.toml"
PRESET = "preset"
_PREFIX = "EVOLVE_"
_RENAMED = {("train", "clip"): "max_grad_norm"}
"""Keys that were renamed: section and old key -> the new one."""
_ROLES = tuple(f"policy.{role}." for role in ROLES)
_LOOSE = ("root", PRESET)
"""Fields that are no sections."""


def find_config(start: Path | None = None) -> Path | None:
    """Return the nearest `evolve.toml` at `start` (default: here) or above it, or None."""
    folder = (start or Path.cwd()).resolve()
    return next((path for parent in (folder, *folder.parents) if (path := parent / FILE).is_file()), None)


def load_config(
    path: Path | None = None, overrides: Mapping[str, Any] | None = None, *, root: Path | None = None
) -> Config:
    """Return the configuration: `overrides` (section -> key -> value, `preset` -> name), then variables, then the file,
    then the preset that one of them names, then defaults.

    Without `path` the file is searched upwards from here; none at all means defaults in this folder, and `root` means
    defaults in that one, without a search. Raises `ConfigError` for a missing or malformed file, an unknown section,
    key or preset, and a bad value.
    """
    file = path or (find_config() if root is None else None)
    home = file.resolve().parent if file else root or Path.cwd()
    values = _read(file) if file else {}
    return _configured(values, (_variables(), overrides or {}), home, str(file or "the configuration"))


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return a configuration with `section.key` -> value over it; `preset` stands for itself.

    Raises `ConfigError` as `load_config`.
    """
    values = config.model_dump(exclude_unset=True, exclude={"root"})
    return _configured(values, (by_section(changes),), config.root, "the settings") if changes else config


def _configured(values: dict[str, Any], layers: Iterable[Mapping[str, Any]], root: Path, source: str) -> Config:
    """Return the configuration that values and the layers over them come to."""
    for layer in layers:
        for section, keys in layer.items():
            if section == PRESET:
                values[PRESET] = keys
                continue
            values[section] = _merged(_kept(section, values.get(section, {}), keys), keys)
    if values.get(PRESET) is not None:
        find_preset(values[PRESET])  # says so itself when there is none
    try:
        return Config.model_validate({**values, "root": root})
    except ValidationError as invalid:
        raise ConfigError(f"{source}: " + "; ".join(_sentence(dict(error)) for error in invalid.errors())) from invalid


def find_modules_of(config: Config) -> None:
    """Let `module:name` find the user's own modules in this folder and beside evolve.toml.

    They come last on the path: a file of theirs that is called like one of our packages takes nothing over.
    """
    own = (str(Path.cwd()), str(config.root.resolve()))
    sys.path += [folder for folder in dict.fromkeys(own) if folder not in sys.path]


def stored_config(kept: Mapping[str, Any], root: Path) -> Config:
    """Return a configuration as a run or a training was begun with, whose journalled keys may have been renamed since.

    Raises `ConfigError` for one that this version does not read.
    """
    values = {section: dict(keys) if isinstance(keys, Mapping) else keys for section, keys in kept.items()}
    for (section, old), new in _RENAMED.items():
        if old in values.get(section, ()):
            values[section].setdefault(new, values[section].pop(old))
    try:
        return Config.model_validate({**values, "root": root})
    except ValidationError as invalid:
        wrong = "; ".join(_sentence(dict(error)) for error in invalid.errors())
        raise ConfigError(f"it was begun with settings that this version does not read: {wrong}") from invalid


def assigned(texts: Iterable[str]) -> dict[str, Any]:
    """Return `section.key` -> value of texts like `run.batch_size=8`; a value that is no TOML is the text it is.

    A role's key is `policy.reflector.key`. Raises `ConfigError` for any other text.
    """
    given: dict[str, Any] = {}
    for assignment in texts:
        path, equals, text = assignment.partition("=")
        if not equals or len(path.split(".")) != (3 if path.startswith(_ROLES) else 2):
            raise ConfigError(f"{assignment!r} was refused; expected section.key=value, as in run.batch_size=8")
        try:
            given[path] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            given[path] = text
    return given


def by_section(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `section.key` -> value as section -> key -> value; `preset` stands for itself, a role is a section in
    its section.
    """
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *sections, key = path.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    return nested


def _kept(section: str, below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return what stays of a lower layer: another environment does not take over the keys of the one it replaces."""
    fields = EnvironmentSection.model_fields
    name = below.get("name", fields["name"].default)
    if section != "environment" or above.get("name", name) == name:
        return below
    return {key: value for key, value in below.items() if key in fields}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with `above` over `below`; of a role in it key by key. `[playbook] reflector` is no role."""
    both = (role for role in ROLES if isinstance(below.get(role), dict) and isinstance(above.get(role), dict))
    roles = {role: {**below[role], **above[role]} for role in both}
    return {**below, **above, **roles}


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as missing:
        raise ConfigError(f"no file {str(path)!r}; run `evolve init` to make one") from missing
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as malformed:
        raise ConfigError(f"{path} is no TOML: {malformed}; mend that line") from malformed
    loose = sorted(key for key, value in values.items() if not isinstance(value, dict) and key != PRESET)
    if loose:
        raise ConfigError(f"{path}: {loose[0]!r} stands outside any section; put it under one of {_sections()}")
    return values


def _variables() -> dict[str, Any]:
    unknown = [
        name
        for name in os.environ
        if name.startswith(_PREFIX)
        and "__" in name
        and name.removeprefix(_PREFIX).split("__")[0].lower() not in Config.model_fields
    ]
    if unknown:
        raise ConfigError(f"variable {unknown[0]!r} names no section; the sections are {_sections()}")
    found = EnvSettingsSource(Config)()
    return {section: keys for section, keys in found.items() if section != "root"}


def _sections() -> str:
    return ", ".join(f"[{name}]" for name in Config.model_fields if name not in _LOOSE)


def _sentence(error: dict[str, Any]) -> str:
    """Say one validation error as a sentence with the fix."""
    location = [str(part) for part in error["loc"]]
    if location[0] == "policy" and len(location) > 2 and location[1] in ROLES:
        location[:2] = [".".join(location[:2])]
        if error["type"] == "missing":
            return f"[{location[0]}] lacks {location[1]!r}; it is a section of its own and takes no key of [policy]"
    if error["type"] != "extra_forbidden":
        where = f"[{location[0]}] {'.'.join(location[1:])}".strip()
        return f"{where} = {error['input']!r} was refused: {error['msg']}"
    if len(location) == 1:
        return f"unknown section [{location[0]}]{_nearest(location[0], Config.model_fields)}"
    section, key = location[0], location[-1]
    if (section, key) in _RENAMED:
        return f"unknown key {key!r} in [{section}]; it is now called {_RENAMED[section, key]!r}"
    model = RoleSection if section.startswith("policy.") else Config.model_fields[section].annotation
    known = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
    elsewhere = [
        name for name, field in Config.model_fields.items() if key in getattr(field.annotation, "model_fields", {})
    ]
    hint = f"; it belongs to [{elsewhere[0]}]" if elsewhere else _nearest(key, known)
    return f"unknown key {key!r} in [{section}]{hint}"


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    names = [other for other in known if other not in _LOOSE]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(names)}"
