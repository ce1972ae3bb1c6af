"""Reads the scenarios and function documentation that the `bfcl-eval` package carries. Nothing is downloaded.

200 scenarios x 4 variants. The package is installed without its dependencies (`pip install --no-deps bfcl-eval`,
plus `mpmath`): the multi-turn part needs no more. Its checker runs calls through `eval`; that part of it is never used
here.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Literal

from memory.errors import EvolveError
from memory.records import Frozen
from policies.protocols import ToolSpec

Variant = Literal["base", "miss_func", "miss_param", "long_context"]
"""Kind of BFCL's multi-turn tasks."""
VARIANTS: tuple[Variant, ...] = ("base", "miss_func", "miss_param", "long_context")

_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}


class NotInstalled(EvolveError, ImportError):
    """The benchmark's package is missing."""


class Entry(Frozen):
    """One scenario in one variant."""

    id: str
    variant: Variant
    number: int
    """0 to 199: the four variants of a number share most of their gold."""
    turns: tuple[str, ...]
    """What the user says at the start of each turn; empty where only functions become available."""
    classes: tuple[str, ...]
    initial_config: dict[str, Any]
    excluded: frozenset[str]
    withheld: dict[int, tuple[str, ...]]
    """Turn -> functions that become available at its start, and are missing before (unless the gold uses them before,
    as in scenario 49)."""
    gold: tuple[tuple[str, ...], ...]
    """Calls per turn, as Python source."""

    @property
    def long_context(self) -> bool:
        """True when the simulated systems pad their answers."""
        return self.variant == "long_context"


def installed() -> bool:
    """Return True when the package is there."""
    return find_spec("bfcl_eval") is not None and find_spec("mpmath") is not None


@cache
def entries(variant: Variant) -> tuple[Entry, ...]:
    """Return the 200 entries of a variant. Raises `NotInstalled`."""
    name = f"BFCL_v4_multi_turn_{variant}.json"
    gold = {line["id"]: line["ground_truth"] for line in _lines("possible_answer", name)}
    return tuple(_entry(line, variant, gold[line["id"]]) for line in _lines(name))


@cache
def class_of(name: str) -> type[Any]:
    """Return one of the eight simulated systems. Raises `NotInstalled`."""
    _check()
    return getattr(importlib.import_module(_backend().CLASS_FILE_PATH_MAPPING[name]), name)


@cache
def functions(class_name: str) -> tuple[ToolSpec, ...]:
    """Return the documented functions of a system as tool schemas."""
    _check()
    lines = _lines("multi_turn_func_doc", _backend().MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name])
    return tuple(
        ToolSpec(name=line["name"], description=line["description"], parameters=_schema(line["parameters"]))
        for line in lines
    )


def stateless(class_name: str) -> bool:
    """Return True for a system without a scenario to load."""
    return class_name in _backend().STATELESS_CLASSES


def _entry(line: dict[str, Any], variant: Variant, gold: list[list[str]]) -> Entry:
    return Entry(
        id=line["id"],
        variant=variant,
        number=int(line["id"].rsplit("_", 1)[1]),
        turns=tuple("\n".join(message["content"] for message in turn) for turn in line["question"]),
        classes=tuple(line["involved_classes"]),
        initial_config=line["initial_config"],
        excluded=frozenset(line.get("excluded_function", ())),
        withheld={
            int(turn): _unused(names, gold[: int(turn)]) for turn, names in line.get("missed_function", {}).items()
        },
        gold=tuple(tuple(turn) for turn in gold),
    )


def _unused(names: list[str], turns: list[list[str]]) -> tuple[str, ...]:
    used = {source.split("(")[0].strip() for turn in turns for source in turn}
    return tuple(name for name in names if name not in used)


def _schema(node: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema: the package writes `dict` and `float` where JSON schema says `object` and `number`."""
    found = dict(node)
    found["type"] = _JSON_TYPES.get(node["type"], node["type"])
    if "properties" in node:
        found["properties"] = {name: _schema(child) for name, child in node["properties"].items()}
    if "items" in node:
        found["items"] = _schema(node["items"])
    return found


def _lines(*path: str) -> Iterator[dict[str, Any]]:
    _check()
    text = files("bfcl_eval").joinpath("data", *path).read_text(encoding="utf-8")
    return (json.loads(line) for line in text.splitlines() if line.strip())


def _backend() -> Any:
    return importlib.import_module("bfcl_eval.constants.executable_backend_config")


def _check() -> None:
    if not installed():
        raise NotInstalled("BFCL needs its package: pip install --no-deps bfcl-eval && pip install mpmath")
