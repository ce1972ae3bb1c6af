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
from typing import Any

from pydantic import BaseModel

import evolve
from benchmarks.table import PACKAGES
from evolve.config.model import Config, RoleSection
from evolve.config.preset import Preset, find_preset, preset_names
from evolve.config.tables import Member, Section, table_of
from evolve.config.training import MEMBERS
from evolve.inspector.rendering import glossary
from evolve.loop.assembly import environment_options, gate_options, shipped_environments, shipped_gates
from evolve.surface import HOME
from policies.price import Price
from policies.rl import slots
from policies.server_settings import ServerSettings

HIDDEN = ("root",)
"""Fields of the configuration that no file sets."""


def configuration() -> str:
    """Return every section and table with its keys, then the options of what keys name, as Markdown."""
    told = field_texts(Config)
    single = [_row(name, Config.model_fields[name], told[name]) for name in _keys(Config)]
    parts = [text for path, model in tables(Config) if model is not Member and (text := _table(path, model))]
    return "\n".join([_HEAD, *_TABLE, *single, "", *parts, _OPTIONS, *_members()])


_HEAD = """\
# Every key of evolve.toml

Written by `make docs` from the classes themselves. What a call or an option says comes first, then variables
`EVOLVE_<SECTION>__<KEY>`, then the file, then the preset, then the default here. An unknown key is refused; one of an
earlier version is taken, with a warning, and `evolve config migrate` rewrites it. `evolve config show` prints the
values in force.

## Above all sections
"""
_OPTIONS = """\
# Options of what is named

What a key names may have options of its own, declared by whoever takes them. Those of an environment and of a policy
stand beside its name, those of a gate, a curator, a rule or a member of training in a table of their own.
"""
_TABLE = ("| key | default | what |", "| --- | --- | --- |")
_NAMED = (
    *("playbook.notebook", "playbook.distill", "skills.useless", "skills.unused"),
    *("forget.useless", "forget.harmful", "forget.unused"),
)
"""Tables whose curator or rule another key names: their options stand in the second part."""
_ROLES = ("policy.reflector", "policy.curator", "policy.judge")


def tables(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the path and class of each table below a section, the outer ones first."""
    for name in model.model_fields:
        if (inner := table_of(model, name)) and (issubclass(inner, Section) or _is_nested(inner)):
            yield f"{above}{name}", inner
            yield from tables(inner, f"{above}{name}.")


def _is_nested(model: type[BaseModel]) -> bool:
    """Tell whether a class of a lower floor is a table of its own, not a value of several parts as a price is."""
    return model is not Price


def _keys(model: type[BaseModel]) -> list[str]:
    """Return the fields of a section that are keys: not what stands in a table of its own, but the name in one."""
    return [
        name
        for name in model.model_fields
        if name not in HIDDEN and ((inner := table_of(model, name)) in (None, Price) or issubclass(inner, Member))
    ]


def _table(path: str, model: type[BaseModel]) -> str:
    """Return a section or table of the first part; of a role what it has beside `[policy]`."""
    if path in _NAMED or path in _ROLES[1:]:
        return ""
    left_out: set[str] = set()
    title, what = f"`[{path}]`", (inspect.getdoc(model) or "").partition("`: ")[2] or inspect.getdoc(model) or ""
    if path == "policy":
        left_out = set(ServerSettings.model_fields)
    elif path in _ROLES:
        title, left_out = ", ".join(f"`[{each}]`" for each in _ROLES), set(model.model_fields)
    elif path == "policy.teacher":
        left_out = set(RoleSection.model_fields)
    elif issubclass(model, Member):
        left_out = {"name"}
    rows = [
        _row(name, model.model_fields[name], field_texts(model)[name]) for name in _keys(model) if name not in left_out
    ]
    text = f"## {title}\n\n{what[:1].upper()}{what[1:]}\n"
    return "\n".join([text, *_TABLE, *rows, ""] if rows else [text])


def _members() -> Iterator[str]:
    """Yield the options of environments, policies, gates, curators, rules and members of training."""
    for name in shipped_environments():
        yield _own(f'environment.name = "{name}"', environment_options(name))
    yield _own('policy.name = "openai"` and `"served"', ServerSettings)
    for name in shipped_gates():
        if model := gate_options(name):
            yield _own(f"[gate.{name}]", model)
    found = dict(tables(Config))
    for path in _NAMED:
        yield _own(f"[{path}]", found[path])
    for key, slot in MEMBERS.items():
        rows = [f"| `{name}` | {_defaults(slot, name)} |" for name in slots.names(slot) if slots.options(slot, name)]
        if rows:
            yield "\n".join([f"## `[train.{key}]`\n", "| name | options |", "| --- | --- |", *rows, ""])


def _own(title: str, model: type[BaseModel] | None) -> str:
    return "\n".join([f"## `{title}`\n", *_TABLE, *(_rows(model) if model else ()), ""])


def _defaults(slot: str, name: str) -> str:
    return ", ".join(f"`{each} = {_plain(value)}`" for each, value in slots.options(slot, name).items())


def _plain(value: object) -> str:
    return getattr(value, "__name__", "") or json.dumps(value)


def _holds_table(annotation: Any) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, BaseModel)


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
    plain = value.name if isinstance(value, Member) else value.value if isinstance(value, Enum) else value
    return f"`{json.dumps(list(plain) if isinstance(plain, tuple) else plain)}`"


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
    return "its defaults" if _holds_table(field.annotation) else "made anew"


def _methods(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        if not name.startswith("_") and inspect.isfunction(member):
            yield f"\n### `{value.__name__}.{name}`\n\n{_call(name, member)}{inspect.getdoc(member)}\n"


def words() -> str:
    """Return the glossary as Markdown: the terms of the field, explained as the page explains them."""
    head = "Written by `make docs` from `evolve/inspector/glossary.toml`; `evolve ui` explains them in place."
    return f"# Words\n\n{head}\n\n" + "".join(f"- **{word}**: {text}\n" for word, text in glossary()["terms"].items())
