"""Public names of `evolve`, and the module of each: `evolve/__init__.pyi` says it, to type checkers as well."""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

DISTRIBUTION = "evolve-agents"
STUB = Path(__file__).with_name("__init__.pyi")
HOME: dict[str, str] = {
    name.name: str(node.module)
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for name in node.names
}
"""Public name -> module that defines it."""


def public(name: str) -> object:
    """Return what a public name stands for.

    Raises `AttributeError` for a name that there is not, `ImportError` with the fix where an extra is not installed.
    """
    if name not in HOME:
        near = get_close_matches(name, HOME, n=3)
        fix = f"did you mean {' or '.join(near)}?" if near else "evolve.__all__ lists what it offers"
        raise AttributeError(f"module 'evolve' has no attribute {name!r}; {fix}")
    try:
        return getattr(import_module(HOME[name]), name)
    except ModuleNotFoundError as missing:
        extra = extra_with(missing.name or "")
        if extra is None:
            raise
        raise ImportError(
            f"evolve.{name} needs the package {missing.name!r}: pip install '{DISTRIBUTION}[{extra}]'"
        ) from missing


def extra_with(package: str) -> str | None:
    """Return the extra of this distribution that brings an importable package; None where none does.

    `dev` is for who works on this project, and is never meant.
    """
    from importlib import metadata  # slow, and seldom wanted

    wanted = re.sub(r"[._]+", "-", package.partition(".")[0]).lower()
    for requirement in metadata.requires(DISTRIBUTION) or ():
        brought, _, condition = requirement.partition(";")
        extra = re.search(r"extra == ['\"](\w+)['\"]", condition)
        if extra and extra[1] != "dev" and re.split(r"[^A-Za-z0-9._-]", brought.strip())[0].lower() == wanted:
            return extra[1]
    return None
