"""References made from the code: keys of `evolve.toml`, presets, slots of training, words, and `import evolve`."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from itertools import pairwise
from textwrap import dedent
from typing import Any, get_args

from pydantic import BaseModel

import evolve
from benchmarks.table import PACKAGES
from evolve.config.model import Config, EnvironmentSection
from evolve.config.preset import Preset, find_preset, preset_names
from evolve.config.tables import Section
from evolve.inspector.rendering import glossary
from evolve.loop.assembly import environment_options, shipped_environments
from evolve.surface import HOME
from policies.rl import slots

HIDDEN = ("root",)
"""Fields of the configuration that no file sets."""


def configuration() -> str:
    """Return every section with its keys, their defaults and what they mean, as Markdown."""
    parts = {name: field for name, field in Config.model_fields.items() if name not in HIDDEN}
    told = field_texts(Config)
    single = [_row(name, field, told[name]) for name, field in parts.items() if not _is_section(field.annotation)]
    sections = [_section(each) for field in parts.values() for each in _sections(field.annotation)]
    return "\n".join([_HEAD, *_TABLE, *single, "", *sections])


_HEAD = """\
# Every key of evolve.toml

Written by `make docs` from the classes themselves. What a call or an option says comes first, then variables
`EVOLVE_<SECTION>__<KEY>`, then the file, then the preset, then the default here. An unknown key is refused.
`evolve config show` prints the values in force.

## Above all sections
"""
_TABLE = ("| key | default | what |", "| --- | --- | --- |")


def _is_section(annotation: Any) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, BaseModel)


def _sections(annotation: Any) -> Iterator[Any]:
    """Yield a section, then those that its keys may hold, each once."""
    if _is_section(annotation):
        yield annotation
        held = (each for field in annotation.model_fields.values() for each in get_args(field.annotation))
        yield from dict.fromkeys(each for each in held if _is_section(each) and issubclass(each, Section))


def _section(section: Any) -> str:
    title, _, what = (inspect.getdoc(section) or "").partition(": ")
    rows = _rows(section)
    more = map(_world, shipped_environments()) if section is EnvironmentSection else ()
    return "\n".join([f"## {title}\n\n{what[:1].upper()}{what[1:]}\n", *_TABLE, *rows, "", *more])


def _world(name: str) -> str:
    """Return the keys that `[environment]` takes for one that ships here."""
    model = environment_options(name)
    return "\n".join([f'### `environment.name = "{name}"`\n', *_TABLE, *(_rows(model) if model else ()), ""])


def _rows(model: type[BaseModel]) -> list[str]:
    told = field_texts(model)
    return [_row(name, field, told.get(name, "")) for name, field in model.model_fields.items()]


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """Return what stands below each field of a model and of its bases, on one line."""
    found: dict[str, str] = {}
    for base in reversed([each for each in model.__mro__ if issubclass(each, BaseModel) and _is_ours(each)]):
        (defined,) = ast.parse(dedent(inspect.getsource(base))).body
        assert isinstance(defined, ast.ClassDef)
        for field, below in pairwise(defined.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[ast.unparse(field.target)] = " ".join(str(below.value.value).split())
    return found


def _is_ours(model: type[BaseModel]) -> bool:
    return model.__module__.partition(".")[0] in PACKAGES


def _row(name: str, field: Any, told: str) -> str:
    told = told.replace("|", "\\|")
    default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
    return f"| `{name}` | {default} | {told} |"


def _default(value: object) -> str:
    if value is None:
        return "none"
    plain = list(value) if isinstance(value, tuple) else value.value if isinstance(value, Enum) else value
    return f"`{json.dumps(plain)}`"


def preset_table() -> str:
    """Return the presets with their papers as a table."""
    rows = [f"| `{each.name}` | {each.about.title} | {each.about.paper} |" for each in _presets()]
    return "\n".join(["| preset | method | paper |", "| --- | --- | --- |", *rows]) + "\n"


def slot_table() -> str:
    """Return the members of each slot of training, what is experimental apart from what is not."""
    rows = ["| slot | members | experimental |", "| --- | --- | --- |"]
    for slot in slots.SLOTS:
        told: dict[bool, list[str]] = {False: [], True: []}
        for name in slots.names(slot):
            told[slots.experimental(slot, name)].append(f"`{name}`")
        rows.append(f"| {slot} | {', '.join(told[False])} | {', '.join(told[True])} |")
    return "\n".join(rows) + "\n"


def presets() -> str:
    """Return what every preset does, sets and leaves out, as Markdown."""
    return "# Presets\n\nWritten by `make docs` from `evolve/config/presets/`.\n\n" + "\n".join(
        map(_preset, _presets())
    )


def _presets() -> Iterator[Preset]:
    return map(find_preset, preset_names())


def _preset(preset: Preset) -> str:
    about = preset.about
    values = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in preset.keys().items())
    deviates = "".join(f"- {text}\n" for text in about.deviates)
    text = f"## `{preset.name}`: {about.title}\n\n{about.paper}. {about.summary}\n\nSets {values}.\n"
    return text + (f"\nDeviates from the paper:\n\n{deviates}" if deviates else "")


def surface() -> str:
    """Return what `import evolve` offers, with signatures, fields and methods, as Markdown."""
    parts = ["# What `import evolve` offers\n\nWritten by `make docs` from the docstrings.\n"]
    parts += [f"## `{name}`\n\n{_told(name, getattr(evolve, name))}" for name in evolve.__all__]
    return "\n".join(parts)


def meaning(name: str) -> str:
    """Return what a public alias of a type stands for, from the text below its assignment."""
    body = ast.parse(inspect.getsource(import_module(HOME[name]))).body
    for at, node in enumerate(body):
        if isinstance(node, ast.Assign) and name in [ast.unparse(target) for target in node.targets]:
            below = body[at + 1] if at + 1 < len(body) else None
            said = below.value if isinstance(below, ast.Expr) else None
            return str(said.value) if isinstance(said, ast.Constant) else ""
    return ""


def _alias(name: str, value: Any) -> str:
    """Return an alias with what it stands for, without the names of our modules."""
    said = re.sub(r"\b(?:evolve|memory|playbooks|policies|skills|collections|typing)(?:\.\w+)*\.(?=\w)", "", str(value))
    return f"    {name} = {said}\n\n{meaning(name)}\n"


def _told(name: str, value: Any) -> str:
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return _alias(name, value)
    if not inspect.isclass(value):
        return f"{_call(name, value)}{inspect.getdoc(value)}\n"
    if issubclass(value, Section):
        return f"{inspect.getdoc(value)}\n\nIts keys: [config.md](config.md).\n"
    own = _fields(value) if issubclass(value, BaseModel) else ""
    made = _call(name, value) if not own and inspect.isfunction(value.__init__) and not _abstract(value) else ""
    methods = "" if issubclass(value, BaseModel) else "".join(_methods(value))
    bases = [each.__name__ for each in value.__mro__[1:-1] if issubclass(each, Exception)]
    kind = f"An exception: {', '.join(bases)}.\n" if bases else ""
    text = "\n".join(part for part in (f"{made}{inspect.getdoc(value)}\n", kind, own) if part)
    return text + methods


def _abstract(value: type) -> bool:
    """Tell whether a class is a protocol, an exception or an enumeration: nobody calls its constructor."""
    return bool(getattr(value, "_is_protocol", False)) or issubclass(value, Exception | Enum)


def _call(name: str, value: Any) -> str:
    """Return a signature as code, without the quotes of postponed annotations."""
    said = f"{name}{inspect.signature(value)}".replace("''", '""').replace("'", "")
    said = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", said)
    return f"    {said}\n\n"


def _fields(model: type[BaseModel]) -> str:
    told = field_texts(model)
    lines = [
        f"- `{name}`{'' if field.is_required() else f' = {_shown(field)}'}"
        + (f": {told[name]}" if name in told else "")
        for name, field in model.model_fields.items()
        if name not in HIDDEN
    ]
    return "\n".join(lines) + "\n"


def _shown(field: Any) -> str:
    if isinstance(field.default, str | int | float | tuple | None) and field.default_factory is None:
        return _default(field.default)
    return "its defaults" if _is_section(field.annotation) else "made anew"


def _methods(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        if not name.startswith("_") and inspect.isfunction(member):
            yield f"\n### `{value.__name__}.{name}`\n\n{_call(name, member)}{inspect.getdoc(member)}\n"


def words() -> str:
    """Return the glossary as Markdown: the terms of the field, explained as the page explains them."""
    head = "Written by `make docs` from `evolve/inspector/glossary.toml`; `evolve ui` explains them in place."
    return f"# Words\n\n{head}\n\n" + "".join(f"- **{word}**: {text}\n" for word, text in glossary()["terms"].items())
