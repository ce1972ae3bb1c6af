"""Counts the shape of a tree: circles, upward arrows, fragments, names that stand twice, long files, lines, keys, SQL.

    python benchmarks/shape.py [FOLDER]

It prints JSON: for each count what was counted. The folder is a checkout of this project, of any commit; nothing of it
is run, but its packages must lie there.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import grimp
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

PACKAGES = ("evolve", "memory", "skills", "policies", "playbooks")
FRAGMENT, CEILING = 100, 500
"""Lines under which a module is small, and above which it is long."""
SQL = re.compile(
    r"\s*(SELECT\b.+\bFROM|INSERT (OR \w+ )?INTO|DELETE FROM|CREATE (TABLE|INDEX|VIRTUAL)|UPDATE \w+ SET|PRAGMA)\b",
    re.DOTALL,
)
OWN = re.compile(rf"({'|'.join(PACKAGES)})((?:\.\w+)+)(\.\{{\}})*(:\w+)?")
SETTING = re.compile(r"^\| `([a-z_.]+)`", re.MULTILINE)
USERS = ("benchmarks", "docs/guides", "docs/presets.md", "evolve/config/presets", "examples", "tests", "README.md")
"""Where a key of the configuration is set by somebody."""


def counts(root: Path) -> dict[str, list[str]]:
    """Return what was counted, by what it is."""
    sys.path.insert(0, str(root))
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    lines = {module: len(_file(root, module).read_text(encoding="utf-8").splitlines()) for module in graph.modules}
    return {
        "circles": list(circles(graph)),
        "upward arrows": list(upward(root, graph)),
        "fragments": list(fragments(root, graph, lines)),
        "duplicate basenames": duplicates(root, graph),
        f"files above {CEILING} lines": [module for module, count in lines.items() if count > CEILING],
        "lines": [f"{count} {module}" for module, count in sorted(lines.items())],
        "keys": keys(root),
        "keys that nobody sets": unset(root),
        "modules with SQL outside memory": sorted(
            {module for module, _ in _texts(root, graph, SQL.match) if not module.startswith("memory")}
        ),
        "strings that name our own modules": [
            f"{module}: {text}" for module, text in _texts(root, graph, OWN.fullmatch) if _names_module(root, text)
        ],
    }


def circles(graph: grimp.ImportGraph) -> Iterator[str]:
    """Yield the sets of modules that import each other in a circle."""
    modules = sorted(graph.modules)
    number = {module: at for at, module in enumerate(modules)}
    arrows = [(number[a], number[b]) for a in modules for b in graph.find_modules_directly_imported_by(a)]
    ends = tuple(np.array(arrows).T)
    matrix = csr_matrix((np.ones(len(arrows)), ends), shape=(len(modules), len(modules)))
    _, labels = connected_components(matrix, connection="strong")
    found: dict[int, list[str]] = defaultdict(list)
    for module, label in zip(modules, labels, strict=True):
        found[label].append(module)
    return (" ".join(each) for each in found.values() if len(each) > 1)


def upward(root: Path, graph: grimp.ImportGraph) -> Iterator[str]:
    """Yield the imports that run against the order of the tree's own layers (`pyproject.toml`)."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    for contract in (each for each in contracts if each["type"] == "layers"):
        for container in contract.get("containers", [""]):
            rooms = [
                (at, f"{container}.{name.strip(' ()')}".lstrip("."))
                for at, layer in enumerate(contract["layers"])
                for name in re.split("[|:]", layer)
            ]
            yield from _upward(graph, rooms)


def _upward(graph: grimp.ImportGraph, rooms: list[tuple[int, str]]) -> Iterator[str]:
    inside = {room: {room, *graph.find_descendants(room)} for _, room in rooms if room in graph.modules}
    for (high, above), (low, below) in combinations([each for each in rooms if each[1] in inside], 2):
        for module in sorted(inside[below]):
            for found in sorted(graph.find_modules_directly_imported_by(module) & inside[above]):
                yield f"{module} -> {found}"
        if high == low:
            for module in sorted(inside[above]):
                for found in sorted(graph.find_modules_directly_imported_by(module) & inside[below]):
                    yield f"{module} -> {found}"


def fragments(root: Path, graph: grimp.ImportGraph, lines: dict[str, int]) -> Iterator[str]:
    """Yield the small modules that one module alone imports, which stands in the same folder."""
    for module in sorted(graph.modules):
        readers = graph.find_modules_that_directly_import(module)
        file = _file(root, module)
        if file.name != "__init__.py" and lines[module] < FRAGMENT and len(readers) == 1:
            (reader,) = readers
            if _file(root, reader).parent == file.parent:
                yield f"{module} ({lines[module]} lines), of {reader}"


def duplicates(root: Path, graph: grimp.ImportGraph) -> list[str]:
    """Return the file names that stand in several folders."""
    names = Counter(_file(root, module).name for module in graph.modules)
    return sorted(name for name, count in names.items() if count > 1 and name not in ("__init__.py", "__main__.py"))


def keys(root: Path) -> list[str]:
    """Return the keys of the configuration that its page lists: those of sections and of fixed tables in them.

    Left out are the options of a member that a key names (an environment, a gate, a loss), which the page lists in a
    part of their own; the keys that a role shares with `[policy]` count once.
    """
    found: list[str] = []
    core = (root / "docs/config.md").read_text(encoding="utf-8").partition("\n# Options of what is named\n")[0]
    for part in re.split(r"^##+ ", core, flags=re.MULTILINE)[1:]:
        title = part.splitlines()[0]
        found += [f"{title}: {key}" for key in SETTING.findall(part)]
    return found


def unset(root: Path) -> list[str]:
    """Return the keys that no preset, guide, example, test or benchmark sets."""
    files = [
        path for name in USERS for path in ([root / name] if (root / name).is_file() else (root / name).rglob("*.*"))
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".md", ".toml"))
    words = set(re.findall(r"[\"'.]?(\w+)[\"']?\s*[=:]", text))
    return [key for key in keys(root) if key.rpartition(": ")[2].rpartition(".")[2] not in words]


def _texts(root: Path, graph: grimp.ImportGraph, matches: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    """Yield the strings that match, docstrings left out, with their module; `{}` stands for a value in an f-string."""
    for module in sorted(graph.modules):
        tree = ast.parse(_file(root, module).read_text(encoding="utf-8"))
        said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = None if id(node) in said else _text(node)
            if text is not None and matches(text):
                yield module, text


def _text(node: ast.AST) -> str | None:
    """Return the text of a string, or of an f-string with `{}` for each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _names_module(root: Path, text: str) -> bool:
    path = root / re.split(r":|\.\{", text)[0].replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _file(root: Path, module: str) -> Path:
    path = root / module.replace(".", "/")
    return path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"


if __name__ == "__main__":
    print(json.dumps(counts(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())))
