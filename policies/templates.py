"""Prompts are files, `<package>/prompts/<name>.md`, filled by a sandboxed Jinja that accepts no gap and no surplus.

What was learned enters as a value only. A value is never parsed as a template, so braces in it stay text; a chat
delimiter in it (`<|`, `[INST]` ...) is broken up, since servers turn such text into control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import ModuleType
from typing import TYPE_CHECKING, cast

from memory.errors import BadInput, NotFound
from policies.protocols import Message

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

    from policies.protocols import MessageRole

    Turn = tuple[MessageRole, Template]

_NAME = re.compile(r"[a-z0-9_]+")
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_INVISIBLE = re.compile(r"[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_STRUCTURE = re.compile(r"^(?=#|```|~~~|---|===)")
_DELIMITER = re.compile(r"<(?=\||</?SYS>>|(?:start|end)_of_turn>|/?s>)|\[(?=/?(?:INST|SYSTEM_PROMPT)\])", re.IGNORECASE)
"""The first character of what opens or ends a turn in ChatML, Llama, Mistral or Gemma."""
_TURN = re.compile(r"^=== (system|user|assistant)\n", re.MULTILINE)


def render(prompts: ModuleType, name: str, /, **values: object) -> str:
    """Return the prompt `<name>.md` of a package of prompts filled with `values`.

    Raises `NotFound` for an unknown prompt (the message lists those there are) and `BadInput` for a value that the
    template wants and did not get, or got and does not use.
    """
    ((_, template),) = _filled(prompts, name, values)
    return template.render(**values)


def render_turns(prompts: ModuleType, name: str, /, **values: object) -> list[Message]:
    """Return the prompt `<name>.md` as the conversation that it writes down, filled with `values`.

    A line `=== system`, `=== user` or `=== assistant` begins a turn; before the first, the user speaks. Turns are told
    apart before they are filled, so no value can open one. A small model follows an example that stands as earlier
    turns, and copies one that stands in the question (docs/LOG.md). Raises as `render`.
    """
    return [Message(role=role, content=turn.render(**values).strip()) for role, turn in _filled(prompts, name, values)]


def _filled(prompts: ModuleType, name: str, values: Mapping[str, object]) -> tuple[Turn, ...]:
    """Return the turns of a prompt that takes just these values. Raises `NotFound` and `BadInput`."""
    turns, wanted = _load(prompts, name)
    missing, unused = sorted(wanted - set(values)), sorted(set(values) - wanted)
    if missing or unused:
        raise BadInput(f"prompt {prompts.__name__}/{name} wants {sorted(wanted)}; missing {missing}, unused {unused}")
    return turns


def prompt_names(prompts: ModuleType) -> list[str]:
    """Return the names of the prompts of a package, sorted."""
    return sorted(f.name.removesuffix(".md") for f in resources.files(prompts).iterdir() if f.name.endswith(".md"))


def prompt_source(prompts: ModuleType, name: str) -> str:
    """Return a prompt as it is written, with its gaps. Raises `NotFound`, and says which there are."""
    file = resources.files(prompts) / f"{name}.md"
    if not _NAME.fullmatch(name) or not file.is_file():
        raise NotFound(f"no prompt {name!r} in {prompts.__name__}; there are {prompt_names(prompts)}")
    return file.read_text(encoding="utf-8")


def oneline(value: object) -> str:
    """Return a value as one line that cannot pass for structure. The filter `oneline` of every template.

    Line breaks of any kind and control characters become one space, invisible direction marks are dropped, and a
    leading heading, fence or rule is escaped with a backslash: a learned text cannot open a section or add a line.
    """
    text = _BREAKS.sub(" ", _INVISIBLE.sub("", str(value))).strip()
    return _STRUCTURE.sub(r"\\", text)


def broken_up(text: str) -> str:
    """Return a text in which no chat delimiter is whole: a blank stands behind its first character."""
    return _DELIMITER.sub(lambda first: f"{first[0]} ", text)


def _printable(value: object) -> object:
    """Pass a printed value on without chat delimiters; None is a forgotten value, not the word."""
    if value is None:
        raise BadInput("a prompt would print None; give the value, or guard it in the template")
    return broken_up(value) if isinstance(value, str) else value


@cache
def _environment() -> SandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_printable
    )
    environment.filters["oneline"] = oneline
    return environment


@cache
def _load(prompts: ModuleType, name: str) -> tuple[tuple[Turn, ...], frozenset[str]]:
    """Read and compile a prompt once; return its turns with the names of the values they use."""
    from jinja2 import meta

    source = prompt_source(prompts, name)
    environment = _environment()
    wanted = meta.find_undeclared_variables(environment.parse(source))
    parts = ("user", *_TURN.split(source))
    turns = [(role, text) for role, text in zip(parts[::2], parts[1::2], strict=True) if text.strip()]
    return tuple((cast("MessageRole", role), environment.from_string(text)) for role, text in turns), frozenset(wanted)
