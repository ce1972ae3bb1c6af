"""The public surface: users import `evolve` alone, and `evolve.__all__` is the whole of it.

P1  sorted, without repeats
P2  complete: everything public that `evolve` offers is in the list, and everything in the list exists
P3  typed: `evolve/__init__.pyi` tells type checkers the same names, and every package is marked as typed
P4  documented: every name has a docstring of its own and stands in docs/api.md
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import evolve
from evolve.surface import HOME

PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks")


def test_it_is_sorted_and_without_repeats() -> None:
    assert list(evolve.__all__) == sorted(set(evolve.__all__))


def test_every_name_exists_and_dir_shows_it() -> None:
    assert all(getattr(evolve, name) is not None for name in evolve.__all__)
    assert set(evolve.__all__) <= set(dir(evolve))


def test_nothing_public_is_left_out() -> None:
    public = {name for name, value in vars(evolve).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public - {"refuse_shadowed_packages", "HOME"} <= set(evolve.__all__)


def test_type_checkers_are_told_the_same_names(root: Path) -> None:
    stub = ast.parse((root / "evolve/__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    (names,) = [node.value for node in stub.body if isinstance(node, ast.Assign)]
    assert {name.name: node.module for node in imports for name in node.names} == HOME
    assert ast.literal_eval(names) == evolve.__all__
    assert all((root / package / "py.typed").is_file() for package in PACKAGES)


def test_every_name_is_documented(root: Path) -> None:
    page = (root / "docs/api.md").read_text()
    assert [name for name in evolve.__all__ if f"## `{name}" not in page] == []
    assert [name for name in evolve.__all__ if not inspect.getdoc(getattr(evolve, name))] == []
