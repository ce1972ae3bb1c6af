"""Pictures drawn from the code, as Mermaid: the graph of a batch, and the layers that import-linter holds."""

from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from evolve.loop.graph import build

ROOT = Path(__file__).resolve().parents[1]


def graph() -> str:
    """Return the compiled graph of a run; its nodes are never called here."""
    nothing = cast(Any, None)
    return _fenced(build(nothing).compile().get_graph().draw_mermaid(with_styles=False))


def layers() -> str:
    """Return the packages as the import-linter contract orders them: an arrow means "may import"."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    contract = next(each for each in tool["importlinter"]["contracts"] if each["type"] == "layers")
    floors = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    arrows = [f"\t{above} --> {below};" for upper, lower in pairwise(floors) for above in upper for below in lower]
    return _fenced("\n".join(["graph TD;", *arrows]))


def _fenced(text: str) -> str:
    return f"```mermaid\n{text.strip()}\n```\n"
