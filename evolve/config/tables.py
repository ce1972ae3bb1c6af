"""Base classes of the configuration's sections: tables of keys, and options of what a key names.

A closed table says each of its keys. An open one names something - an environment, a gate, a loss - that has options of
its own: they stand beside its keys, are kept as they are given, and are read (`read`) by the class of whoever takes
them, where the name becomes an object. So no option is declared twice, and whoever adds a member declares its options
in the member's own file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from evolve.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
Values = Mapping[str, Any]
"""Key -> value, or a table of the same."""


class Section(BaseModel):
    """Base of a section, and of a table in one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class OpenSection(Section):
    """Base of what names something with options of its own. In which order they were written decides nothing."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _in_order(cls, given: Any) -> Any:
        return _ordered(given)

    @property
    def options(self) -> dict[str, Any]:
        """Return what is no key of this section."""
        return dict(self.model_extra or {})


def _ordered(value: Any) -> Any:
    """Return a value with the keys of all its tables in alphabetical order."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list):
        return [_ordered(each) for each in value]
    return tuple(map(_ordered, value)) if isinstance(value, tuple) else value


class Member(OpenSection):
    """What a key names, with its options: `loss = "ppo"`, or `[train.loss]` with `name = "ppo"` and `high = 0.28`."""

    name: str
    """A file of its slot, or `module:attribute`."""


FROM_ROOT = "from root"
"""Marks a key of an environment that names a file or folder, as seen from the folder of evolve.toml."""
RootPath = Annotated[str, FROM_ROOT]


def table_of(section: type[BaseModel], key: str) -> type[BaseModel] | None:
    """Return the class of the table that stands under a key; None where a value does."""
    field = section.model_fields.get(key)
    held = (field.annotation, *get_args(field.annotation)) if field else ()
    return next((each for each in held if isinstance(each, type) and issubclass(each, BaseModel)), None)


def as_table(section: type[BaseModel], key: str, given: Any) -> Any:
    """Return what is given for a key; a mere name as the table of the member that it names."""
    named = isinstance(given, str) and issubclass(table_of(section, key) or Section, Member)
    return {"name": given} if named else given


def merged(section: type[BaseModel], below: Values, above: Values) -> dict[str, Any]:
    """Return the keys of `above` over those of `below`, table by table.

    Another name takes over no option of what it replaces.
    """
    selects = section.model_fields.get("name")
    if selects and issubclass(section, OpenSection) and "name" in above:
        kept = above["name"] == below.get("name", selects.get_default())
        below = below if kept else {key: value for key, value in below.items() if key in section.model_fields}
    found = dict(below)
    for key, value in above.items():
        inner = table_of(section, key)
        old, new = (as_table(section, key, each) for each in (found.get(key), value))
        tables = isinstance(old, Mapping) and isinstance(new, Mapping) and (inner or not selects)
        found[key] = merged(inner or OpenSection, _named(section, key, old), new) if tables else new
    return found


def _named(section: type[BaseModel], key: str, table: Values) -> Values:
    """Return a table with the name that it has by default, where it is one of a member and gives none."""
    field = section.model_fields.get(key)
    return {"name": field.default.name, **table} if field and isinstance(field.default, Member) else table


def flat(values: Values, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `section.key`, or `section.table.key`, and its value."""
    for key, value in values.items():
        yield from flat(value, f"{above}{key}.") if isinstance(value, Mapping) else [(f"{above}{key}", value)]


def read(options: type[M], given: Values, table: str) -> M:
    """Return the options of a member as its class says them. Raises `ConfigError` for what it does not take."""
    try:
        return options.model_validate(given)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"unknown key {key!r} in [{table}]{nearest(key, options.model_fields)}") from invalid
        known = ", ".join(options.model_fields)
        raise ConfigError(f"[{table}] {key}: {first['msg']}; its own keys are {known}") from invalid


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the known one nearest to it, else all."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(names) or 'none'}"
