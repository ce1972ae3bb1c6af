"""The public surface: users import `evolve` alone, and `evolve.__all__` is the whole of it.

P1  sorted, without repeats
P2  complete: everything public that `evolve` offers is in the list, and everything in the list exists
P3  typed: `evolve/__init__.pyi` tells type checkers the same names, and every package is marked as typed
P4  documented: every name has a docstring of its own and stands in docs/api.md
P5  closed: what a public signature names is public, or comes from Python or a library
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import inspect
import typing
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import evolve
from docs.reference import meaning
from evolve import Outcome, Stats
from evolve.surface import HOME
from memory.store import Store

MADE_FOR_YOU = ("ChainGenerator", "Asked", "AsyncOpenTask", "JournalStore", "OpenTask", "AsyncWorkspace", "Workspace")
"""Classes whose objects the library makes: nobody calls their constructors."""
WORLDS = ("Bfcl", "BfclWorld", "Office", "ToolsEnvironment")
"""Environments that ship here: what they say beyond the protocol is about their own insides."""
HOOKS = ("settings_customise_sources",)
"""Methods that a library calls."""
OTHERS = {*dir(builtins), *typing.__all__, *collections.abc.__all__} | {
    *("Path", "PathLike", "TracebackType", "ast", "datetime"),  # of Python
    *("BaseChatModel", "AnyMessage", "Request", "Response"),  # of LangChain
    *("BaseStore", "Item", "SearchItem", "NamespacePath", "Result"),  # of LangGraph
    *("M", "P", "R", "Row", "T", "cls"),  # type variables
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


def test_a_hidden_name_in_a_signature_is_noticed() -> None:
    def hidden(store: Store, *, rows: Sequence[Outcome] = ()) -> Stats | None: ...

    assert set(named_by("hidden", hidden)) - OTHERS - set(evolve.__all__) == {"Store"}


def named_by(name: str, value: Any) -> Iterator[str]:
    """Yield the names in the annotations of a function, of a class's public methods, and of what a user builds."""
    for text in annotations(name, value):
        yield from (node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name))


def annotations(name: str, value: Any) -> Iterator[str]:
    """Yield the annotations as they are written."""
    if name in WORLDS:
        return
    if inspect.isfunction(value):
        yield from signed(value)
    for base in value.__mro__ if inspect.isclass(value) else ():
        if base.__module__.split(".")[0] not in PACKAGES:
            continue
        for each, member in vars(base).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            made = each == "__init__" and name not in MADE_FOR_YOU
            if inspect.isfunction(function) and (made or not each.startswith("_")) and each not in HOOKS:
                yield from signed(function)
        if name not in MADE_FOR_YOU and (is_dataclass(base) or name.endswith("Section") or name == "Config"):
            yield from (text for each, text in inspect.get_annotations(base).items() if each[0] != "_")


def signed(function: Any) -> Iterator[str]:
    """Yield the annotations of a function's parameters and of what it returns."""
    found = inspect.signature(function)
    every = [*(each.annotation for each in found.parameters.values()), found.return_annotation]
    yield from (each for each in every if isinstance(each, str))  # our modules postpone theirs
