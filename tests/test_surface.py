"""The public surface: users import `evolve` alone, and `evolve.__all__` is the whole of it.

P1  sorted, without repeats
P2  complete: everything public that `evolve` offers is in the list, and everything in the list exists
P3  typed: `evolve/__init__.pyi` tells type checkers the same names, and every package is marked as typed
P4  documented: every name has a docstring of its own and stands in docs/api.md
P5  closed: what a public signature, alias or field names is public, or comes from Python or a library
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import inspect
import sys
import typing
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any

import evolve
from docs.reference import meaning
from evolve import Outcome, Stats
from evolve.surface import HOME
from memory.store import Store

MADE_FOR_YOU = ("ChainGenerator", "Asked", "AsyncOpenTask", "JournalStore", "OpenTask", "AsyncWorkspace", "Workspace")
"""Classes whose objects the library makes: nobody calls their constructors."""
WORLDS = ("Bfcl", "BfclWorld", "McpTools", "Office", "ToolsEnvironment")
"""Worlds and tools that ship here: what they say beyond the protocol is about their own insides."""
INSIDES = {"Asked.context": "RunContext", "Asked.state": "State"}
"""Fields that carry what the loop works with from `ask` to `learn`; nobody outside reads it."""
HOOKS = ("settings_customise_sources",)
"""Methods that a library calls."""
OTHERS = {*dir(builtins), *typing.__all__, *collections.abc.__all__} | {
    *("Path", "PathLike", "TracebackType", "datetime", "FunctionDef", "Import", "ImportFrom"),  # of Python
    *("BaseChatModel", "AnyMessage", "Request", "Response"),  # of LangChain
    *("BaseStore", "Item", "SearchItem", "NamespacePath", "Result"),  # of LangGraph
    *("M", "P", "R", "Row", "T", "cls"),  # type variables
    "Logprob",  # a float, with how JSON writes it
}
PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks", "contrib")


def test_it_is_sorted_and_without_repeats() -> None:
    assert list(evolve.__all__) == sorted(set(evolve.__all__))


def test_every_name_exists_and_dir_shows_it() -> None:
    assert all(getattr(evolve, name) is not None for name in evolve.__all__)
    assert set(evolve.__all__) <= set(dir(evolve))


def test_nothing_public_is_left_out() -> None:
    public = {name for name, value in vars(evolve).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public - {"refuse_shadowed_packages", "HOME", "public"} <= set(evolve.__all__)


def test_type_checkers_are_told_the_same_names(root: Path) -> None:
    stub = ast.parse((root / "evolve/__init__.pyi").read_text())
    (names,) = [node.value for node in stub.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(names) == evolve.__all__ == sorted(HOME)
    assert all((root / package / "py.typed").is_file() for package in PACKAGES)


def test_every_name_is_documented(root: Path) -> None:
    page = (root / "docs/api.md").read_text()
    assert [name for name in evolve.__all__ if f"## `{name}" not in page] == []
    told = {name: meaning(name) or inspect.getdoc(getattr(evolve, name)) for name in evolve.__all__}
    assert [name for name in evolve.__all__ if not told[name]] == []


def test_signatures_name_what_is_public() -> None:
    named = {name: set(named_by(name, getattr(evolve, name))) for name in evolve.__all__}
    missing = {name: sorted(names - OTHERS - set(evolve.__all__)) for name, names in named.items()}
    assert {name: names for name, names in missing.items() if names} == {}


def test_a_public_name_is_the_only_thing_of_that_name() -> None:
    found = [(name, base, text) for name in evolve.__all__ for base, _, text in fields(name, getattr(evolve, name))]
    other = {
        f"{name}: {word} of {base.__module__}"
        for name, base, text in found
        for word in words(text) & set(evolve.__all__)
        if vars(sys.modules[base.__module__]).get(word, getattr(evolve, word)) is not getattr(evolve, word)
    }
    assert other == set()


def test_a_workspace_shows_no_part_of_its_own() -> None:
    for made in (evolve.Workspace, evolve.AsyncWorkspace):
        body = ast.walk(ast.parse(dedent(inspect.getsource(made.__init__))))
        told = {node.attr for node in body if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        assert {name for name in told if name[0] != "_"} == {"config"}


def test_a_hidden_name_in_a_signature_is_noticed() -> None:
    def hidden(store: Store, *, rows: Sequence[Outcome] = ()) -> Stats | None: ...

    assert set(named_by("hidden", hidden)) - OTHERS - set(evolve.__all__) == {"Store"}


def named_by(name: str, value: Any) -> Iterator[str]:
    """Yield the names in the annotations of a function, of a class's public methods and fields, and in an alias."""
    for text in written(name, value):
        yield from words(text)


def words(text: str) -> set[str]:
    """Return the names in an annotation: of `module.Name` the second."""
    every = list(ast.walk(ast.parse(text, mode="eval")))
    modules = {node.value.id for node in every if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}
    plain = {node.id for node in every if isinstance(node, ast.Name)} - modules
    return plain | {node.attr for node in every if isinstance(node, ast.Attribute)}


def written(name: str, value: Any) -> Iterator[str]:
    """Yield the annotations as they are written."""
    if name in WORLDS:
        return
    if inspect.isfunction(value):
        yield from signed(value)
    elif not inspect.isclass(value):
        yield aliased(name)
    yield from (text for _, field, text in fields(name, value) if f"{name}.{field}" not in INSIDES)
    for base in value.__mro__ if inspect.isclass(value) else ():
        if base.__module__.split(".")[0] not in PACKAGES:
            continue
        for each, member in vars(base).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            made = each == "__init__" and name not in MADE_FOR_YOU
            if inspect.isfunction(function) and (made or not each.startswith("_")) and each not in HOOKS:
                yield from signed(function)


def fields(name: str, value: Any) -> Iterator[tuple[type, str, str]]:
    """Yield the class that declares it, name and annotation of each public field of a class."""
    for base in value.__mro__ if inspect.isclass(value) and name not in WORLDS else ():
        if base.__module__.split(".")[0] in PACKAGES:
            for field, text in inspect.get_annotations(base).items():
                if field[0] != "_":
                    yield base, field, str(text)


def aliased(name: str) -> str:
    """Return what an alias of a type is written as."""
    for node in ast.parse(inspect.getsource(import_module(HOME[name]))).body:
        if isinstance(node, ast.Assign) and name in [ast.unparse(target) for target in node.targets]:
            return ast.unparse(node.value)
    raise AssertionError(f"{HOME[name]} assigns no {name}")


def signed(function: Any) -> Iterator[str]:
    """Yield the annotations of a function's parameters and of what it returns."""
    found = inspect.signature(function)
    every = [*(each.annotation for each in found.parameters.values()), found.return_annotation]
    yield from (each for each in every if isinstance(each, str))  # our modules postpone theirs
