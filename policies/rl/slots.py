"""Names become members: a slot is a folder of this package, a name one of its files, or `module:attribute` of your own.

A file's `__all__` names its one member. An installed package adds a member by an entry point of the group
`evolve.<slot>`; a file goes before an entry point of its name. What our own distribution adds in this way is
experimental: built from its paper, and tried in no training of ours. A class is made with its options; a function's
keyword-only parameters are.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module, metadata, resources
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from memory.errors import BadInput, NotFound
from memory.objects import load_object
from policies import rl
from policies.errors import PolicyUnavailable
from policies.rl.protocols import AdvantageEstimator

_log = logging.getLogger(__name__)
DISTRIBUTION = "evolve-agents"
SLOTS = (
    "advantages",
    "losses",
    "samplers",
    "allocators",
    "branching",
    "filters",
    "transforms",
    "corrections",
)


def names(slot: str) -> list[str]:
    """Return the names of a slot's members, sorted. Raises `NotFound` for an unknown slot."""
    return sorted(_members(slot))


def experimental(slot: str, name: str) -> bool:
    """Tell whether a member of ours is experimental; one of another package, or of your own, is not.

    Raises `NotFound` for a name that is not there.
    """
    added_by = None if ":" in name else _entry(slot, name).dist
    return added_by is not None and added_by.name == DISTRIBUTION


def make(slot: str, name: str, options: Mapping[str, object] | None = None) -> Any:
    """Return a slot's member by name, with its options set; one that is experimental is made with a warning.

    Raises `NotFound` for a name that is not there (the message lists those that are), `BadInput` for options that the
    member has not, needs and did not get, or does not take with that value, and `PolicyUnavailable` where torch is
    missing. An option that is an advantage estimator itself is given by its name.
    """
    found = member(slot, name)
    if experimental(slot, name):
        _log.warning("%r of %s is experimental: built from its paper, tried in no training yet", name, slot)
    _check(slot, name, found, options or {})
    given = _typed(slot, name, found, options or {})
    if isinstance(found, type):
        return found(**given)
    return partial(found, **given) if given else found


def member(slot: str, name: str) -> Any:
    """Return what a name stands for, without its options. Raises as `make` does for its name."""
    entry = None if ":" in name else _entry(slot, name)
    try:
        if entry is None:
            return load_object(name)
        if entry.dist is not None:
            return entry.load()
        module = import_module(entry.value)
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        needs = f"{entry.value if entry else name} needs the package 'torch', which is not installed"
        raise PolicyUnavailable(f'{needs}; run `pip install "{DISTRIBUTION}[pocket]"`') from missing
    return getattr(module, module.__all__[0])


def options(slot: str, name: str) -> dict[str, object]:
    """Return the options of a member with their defaults. Raises as `make` does for its name."""
    return {p.name: p.default for p in _parameters(member(slot, name))}


def _entry(slot: str, name: str) -> metadata.EntryPoint:
    known = _members(slot)
    if name not in known:
        raise NotFound(f"no {name!r} in {slot}; there are {', '.join(sorted(known))}, or give `module:attribute`")
    return known[name]


@cache
def _members(slot: str) -> Mapping[str, metadata.EntryPoint]:
    """Return a slot's members by name, read once; a file is told as an entry point that nobody installed.

    Where several add a name, a file goes before our own distribution, and that before others.
    """
    if slot not in SLOTS:
        raise NotFound(f"no slot {slot!r}; there are {', '.join(SLOTS)}")
    group = f"evolve.{slot}"
    files = (file.name for file in (resources.files(rl) / slot).iterdir())
    own = [name.removesuffix(".py") for name in files if name.endswith(".py") and not name.startswith("_")]
    points = sorted(
        metadata.entry_points(group=group), key=lambda point: point.dist is not None and point.dist.name == DISTRIBUTION
    )
    added = {point.name: point for point in points}
    return added | {name: metadata.EntryPoint(name, f"{rl.__name__}.{slot}.{name}", group) for name in own}


def _parameters(member: Any) -> list[inspect.Parameter]:
    """Return the options of a member; what is neither class nor function has none."""
    of_class = isinstance(member, type)
    parameters = inspect.signature(member).parameters.values() if of_class or inspect.isfunction(member) else ()
    return [p for p in parameters if of_class or p.kind is p.KEYWORD_ONLY]


def _check(slot: str, name: str, member: Any, given: Mapping[str, object]) -> None:
    """Raise `BadInput` unless `given` fits the member's options."""
    options = _parameters(member)
    missing = [p.name for p in options if p.default is p.empty and p.name not in given]
    unknown = sorted(set(given) - {p.name for p in options})
    if missing or unknown:
        has = ", ".join(p.name for p in options) or "none"
        close = [near for each in unknown for near in get_close_matches(each, [p.name for p in options], n=1)]
        has += f" (did you mean {close[0]!r}?)" if close else ""
        raise BadInput(f"{slot} {name!r} has the options {has}; missing {missing}, unknown {unknown}")


def _typed(slot: str, name: str, member: Any, given: Mapping[str, object]) -> dict[str, object]:
    """Return the options as the member's annotations want them. Raises `BadInput` for a value of another type."""
    if not given:
        return {}
    hints, made = get_type_hints(member), dict[str, object]()
    for option, value in given.items():
        hint = hints.get(option, Any)
        if hint is AdvantageEstimator:
            made[option] = make("advantages", value) if isinstance(value, str) else value
            continue
        try:
            wanted = TypeAdapter[object](hint, config=ConfigDict(arbitrary_types_allowed=True))
            made[option] = wanted.validate_python(value, strict=True)
        except ValidationError as wrong:
            said = wrong.errors()[0]["msg"]
            raise BadInput(f"{slot} {name!r} got {option} = {value!r}: {said}") from wrong
    return made
