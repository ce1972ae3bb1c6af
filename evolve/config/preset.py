"""Presets: a published method as a named set of configuration values over the parts that are here.

One file per preset, `evolve/config/presets/<name>.toml`: a table `[about]` (title, paper, summary, where it deviates)
and the sections of `evolve.toml` that the method sets. `preset = "ace"` at the top of `evolve.toml` takes them for
every key that is given nowhere else; what the user says wins. A preset of one's own is an `evolve.toml`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel

from evolve import config
from evolve.config.tables import flat, merged
from evolve.errors import ConfigError
from memory.records import Frozen

Values = dict[str, dict[str, Any]]
"""Section -> key -> value."""


class About(Frozen):
    """What a preset reproduces, and where it does not."""

    title: str
    paper: str
    """Authors, year and arXiv number."""
    summary: str
    deviates: tuple[str, ...]


class Preset(Frozen):
    """A named method."""

    name: str
    about: About
    values: Values

    def keys(self) -> dict[str, Any]:
        """Return what it sets as `section.key` -> value."""
        return dict(flat(self.values))


class AppliedPreset(Frozen):
    """What became of a preset in one configuration, as `section.key` -> value in force."""

    name: str
    taken: dict[str, Any]
    """As the preset has it."""
    overridden: dict[str, Any]
    """As the user has it instead."""

    @property
    def sentence(self) -> str:
        """Return both in words."""
        taken = ", ".join(f"{key} = {value!r}" for key, value in self.taken.items()) or "nothing"
        own = ", ".join(f"{key} = {value!r}" for key, value in self.overridden.items())
        return f"preset {self.name} set {taken}" + (f"; your own values stay: {own}" if own else "")


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    folder = resources.files(config) / "presets"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


@cache
def find_preset(name: str) -> Preset:
    """Return the preset of that name. Raises `ConfigError` for an unknown one; the message lists those there are."""
    names = preset_names()
    if name not in names:
        close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(f"no preset {name!r}; {hint}there are {', '.join(names)} (`evolve presets list`)")
    text = (resources.files(config) / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    return Preset(name=name, about=About.model_validate(values.pop("about")), values=values)


def overlay(config: type[BaseModel], preset: Preset, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `given` (section -> keys, or a section object) over the values of a preset."""
    plain = {
        section: keys.model_dump(exclude_unset=True) if isinstance(keys, BaseModel) else keys
        for section, keys in given.items()
    }
    over = merged(config, preset.values, plain)
    return {**given, **{section: over[section] for section in preset.values}}
