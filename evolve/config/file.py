"""Finds and reads `evolve.toml`, merges the `EVOLVE_` variables over it, and says clearly what is wrong with either."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from evolve.config.model import Config
from evolve.config.preset import find_preset
from evolve.config.renamed import RENAMED, translated
from evolve.config.tables import merged, nearest, table_of
from evolve.errors import ConfigError
from memory.redact import holds_password, redact

FILE = "evolve.toml"
PRESET = "preset"
_PREFIX = "EVOLVE_"
_LOOSE = ("root", PRESET)
"""Fields that are no sections."""


def find_config(start: Path | None = None) -> Path | None:
    """Return the nearest `evolve.toml` at `start` (default: here) or above it, or None."""
    folder = (start or Path.cwd()).resolve()
    return next((path for parent in (folder, *folder.parents) if (path := parent / FILE).is_file()), None)


def load_config(
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    root: Path | None = None,
    variables: bool = True,
) -> Config:
    """Return the configuration: `overrides` (section -> key -> value, `preset` -> name), then variables, then the file,
    then the preset that one of them names, then defaults.

    Without `path` the file is searched upwards from here; none at all means defaults in this folder, and `root` means
    defaults in that one, without a search. Without `variables` those of the shell do not count: for settings that are
    not of who asks. Raises `ConfigError` for a missing or malformed file, an unknown section,
    key or preset, and a bad value.
    """
    file = path or (find_config() if root is None else None)
    home = file.resolve().parent if file else root or Path.cwd()
    values = _read(file) if file else {}
    return _configured(
        values, (_variables() if variables else {}, overrides or {}), home, str(file or "the configuration")
    )


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return a configuration with `section.key` -> value over it; `preset` stands for itself.

    Raises `ConfigError` as `load_config`.
    """
    values = config.model_dump(exclude_unset=True, exclude={"root"})
    if PRESET in changes and config.preset:  # another one: what the former one set was not given
        former = Config.model_validate({PRESET: config.preset})
        values = _beyond(former.model_dump(exclude_unset=True, exclude={"root"}), values)
    return _configured(values, (by_section(changes),), config.root, "the settings") if changes else config


def _beyond(below: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `values` say and `below` does not."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = below.get(key)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            found[key] = _beyond(inner, value)  # pyright: ignore[reportUnknownArgumentType] - dumped values
        elif key not in below or value != inner:
            found[key] = value
    return found


def _configured(values: dict[str, Any], layers: Iterable[Mapping[str, Any]], root: Path, source: str) -> Config:
    """Return the configuration that values and the layers over them come to."""
    found = translated(values)
    for layer in layers:
        found = merged(Config, found, translated(layer, (found,)))
    if found.get(PRESET) is not None:
        find_preset(found[PRESET])  # says so itself when there is none
    return _validated({**found, "root": root}, source)


def _validated(values: Mapping[str, Any], source: str) -> Config:
    try:
        return Config.model_validate(values)
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
    values = translated(kept, warn=False)  # nobody can rewrite a journal
    return _validated({**values, "root": root}, "it was begun with settings that this version does not read")


def assigned(texts: Iterable[str]) -> dict[str, Any]:
    """Return `section.key` -> value of texts like `run.batch_size=8`; a value that is no TOML is the text it is.

    A key of a table is `section.table.key`. Raises `ConfigError` for any other text.
    """
    given: dict[str, Any] = {}
    for assignment in texts:
        path, equals, text = assignment.partition("=")
        if not equals or len(path.split(".")) not in (2, 3) or not all(path.split(".")):
            raise ConfigError(f"{assignment!r} was refused; expected section.key=value, as in run.batch_size=8")
        given[path] = _value(path.split("."), text)
    return given


def _value(path: Sequence[str], text: str) -> Any:
    """Return what a text says as the value of a key: TOML, JSON, or the text itself, as it is of a key that is text."""
    section: type[BaseModel] | None = Config
    for name in path[:-1]:
        section = table_of(section, name) if section else None
    field = section.model_fields.get(path[-1]) if section else None
    for parse in (lambda: tomllib.loads(f"value = {text}")["value"], lambda: json.loads(text)):
        with suppress(ValueError):
            value = parse()
            return text if field and field.annotation is str and not isinstance(value, str) else value
    return text


def by_section(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `section.key` -> value as section -> key -> value, likewise of tables; `preset` stands for itself."""
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *sections, key = path.split(".")
        place = nested
        for section in sections:
            inner = place.get(section, {})
            place[section] = inner if isinstance(inner, dict) else {"name": inner}
            place = place[section]
        if isinstance(place.get(key), dict) and isinstance(value, str):  # `train.loss` after an option of it
            place[key]["name"] = value
        else:
            place[key] = value
    return nested


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
    """Return what `EVOLVE_<SECTION>__<KEY>` say; `EVOLVE_PRESET`, and a section as JSON, are such variables too."""
    given: dict[str, Any] = {}
    known = {*Config.model_fields, *(old.partition(".")[0] for old in RENAMED)} - {"root"}
    for name, text in os.environ.items():
        path = name.removeprefix(_PREFIX).lower().split("__")
        if not name.startswith(_PREFIX) or (len(path) == 1 and path[0] not in known):
            continue
        if path[0] not in known:
            raise ConfigError(f"variable {name!r} names no section; the sections are {_sections()}")
        given[".".join(path)] = _value(path, text)
    return by_section(dict(sorted(given.items())))


def _sections() -> str:
    return ", ".join(f"[{name}]" for name in Config.model_fields if name not in _LOOSE)


def _sentence(error: dict[str, Any]) -> str:
    """Say one validation error as a sentence with the fix."""
    if not error["loc"]:  # of all sections together: what was given may hold what must not be repeated
        return str(error["msg"])
    *tables, key = [str(part) for part in error["loc"]]
    section: type[BaseModel] | None = Config
    inside: list[str] = []
    while section and tables and (inner := table_of(section, tables[0])):
        section, inside = inner, [*inside, tables.pop(0)]
    where, key = ".".join(inside), ".".join((*tables, key))
    if error["type"] == "missing" and where.count("."):
        return f"[{where}] lacks {key!r}; it is a section of its own and takes no key of [{inside[0]}]"
    if error["type"] != "extra_forbidden":
        got = repr(error["input"])
        got = "an address with a password" if holds_password(got) else redact(got)
        return f"{f'[{where}]' if where else ''} {key} = {got} was refused: {error['msg']}".strip()
    if not where:
        return f"unknown section [{key}]{nearest(key, [name for name in Config.model_fields if name not in _LOOSE])}"
    elsewhere = [name for name in Config.model_fields if key in getattr(table_of(Config, name), "model_fields", {})]
    known = section.model_fields if section else {}
    return f"unknown key {key!r} in [{where}]" + (
        f"; it belongs to [{elsewhere[0]}]" if elsewhere else nearest(key, known)
    )
