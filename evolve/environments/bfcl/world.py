"""The simulated systems of one episode: instances of its own, calls by name and plain arguments, no `eval`."""

from __future__ import annotations

import ast
import copy
import inspect
import json
from typing import Any

from evolve.environments.bfcl.data import Entry, class_of, functions, stateless
from memory.errors import BadInput
from memory.records import ToolCall

_LARGEST = 10**9
_LARGEST_POWER = 1_000
_POWERS = ("exponent", "precision")


class BfclWorld:
    """Holds the systems of one entry. Pickles; two worlds never share state."""

    def __init__(self, entry: Entry) -> None:
        self.instances: dict[str, Any] = {}
        self._owner: dict[str, str] = {}
        for name in entry.classes:
            instance = class_of(name)()
            if not stateless(name):
                config = copy.deepcopy(entry.initial_config.get(name, {}))
                instance._load_scenario(config, long_context=entry.long_context)
            self.instances[name] = instance
            self._owner.update((spec.name, name) for spec in functions(name))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the functions there are."""
        return tuple(self._owner)

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str | None]:
        """Return (response as the benchmark writes it, error or None).

        Whatever a simulated system raises is a response that begins with `Error during execution`.
        """
        if name not in self._owner:
            message = f"there is no function {name!r} here; there are {', '.join(sorted(self._owner))}"
            return f"Error during execution: {message}", message
        try:
            _refuse_bombs(self._owner[name], name, arguments)
            result = getattr(self.instances[self._owner[name]], name)(**copy.deepcopy(arguments))
        except Exception as error:  # the benchmark's systems raise anything for bad arguments
            return f"Error during execution: {error}", str(error) or type(error).__name__
        error = result.get("error") if isinstance(result, dict) else None
        return _written(result), None if error is None else str(error)

    def state(self) -> dict[str, dict[str, Any]]:
        """Return a copy of what the benchmark compares: the public attributes of every system."""
        return {
            name: {key: copy.deepcopy(value) for key, value in vars(instance).items() if not key.startswith("_")}
            for name, instance in self.instances.items()
        }

    def parse(self, source: str) -> ToolCall:
        """Return `f(1, b=2)` as a tool call with every argument named.

        Only a call of a function of this world with literal arguments is accepted; anything else raises `BadInput`.
        """
        try:
            node = ast.parse(source.strip(), mode="eval").body
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self._owner):
                raise ValueError("expected a call of a function that exists here")
            given = [ast.literal_eval(value) for value in node.args]
            named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
            method = getattr(self.instances[self._owner[node.func.id]], node.func.id)
            bound = inspect.signature(method).bind(*given, **named).arguments
        except (ValueError, TypeError, SyntaxError) as error:
            raise BadInput(f"cannot read the call {source!r}: {error}; expected name(argument=literal, ...)") from error
        return ToolCall(id=source, name=node.func.id, arguments=dict(bound))


def _written(result: Any) -> str:
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except TypeError:  # some functions return objects
            return str(result)
    return str(result)


def _refuse_bombs(owner: str, name: str, arguments: dict[str, Any]) -> None:
    """Refuse arguments with which a simulated system would keep the host busy for hours or eat its memory."""
    if any(isinstance(value, (int, float)) and abs(value) > _LARGEST for value in arguments.values()):
        raise ValueError(f"a number beyond {_LARGEST} is not accepted")
    if any(isinstance(arguments.get(key), (int, float)) and abs(arguments[key]) > _LARGEST_POWER for key in _POWERS):
        raise ValueError(f"an exponent or precision beyond {_LARGEST_POWER} is not accepted")
    if owner == "MathAPI":
        spec = next(spec for spec in functions(owner) if spec.name == name)
        for key, schema in spec.parameters["properties"].items():
            if schema["type"] in ("number", "integer") and not isinstance(arguments.get(key, 0), (int, float)):
                raise ValueError(f"{key} must be a number, got {arguments[key]!r}")
