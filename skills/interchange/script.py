"""A skill as a stand-alone script, and a skill's source out of one.

The script holds the function and all that it requires, callees first, each to the byte between two marks that say how
long it is; then the command that calls it. It needs Python alone. No learned text but the functions themselves is in
it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from memory.errors import BadInput
from skills.host_calls import host, roots_of
from skills.names import dotted
from skills.record import Skill

COMMAND = "skill_command"
_COMMAND = Path(__file__).with_name("command.py")
_HEAD = '''\
# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""{name} as a command: `python {name}.py --help` says how."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # a script called like a standard module must not stand in its place

'''
_TAIL = """

{command}

if __name__ == "__main__":
    raise SystemExit({start}({name}, {needs!r}))
"""
_BEGIN = re.compile(r"^# >>> skill (\w+) (\d+)\r?\n", re.MULTILINE)
_BEGINS = "# >>> skill {name} {length}\n"
_ENDS = "\n# <<< skill {name}\n"
_END = r"\r?\n# <<< skill {name}\r?\n"


def host_functions(skills: Sequence[Skill]) -> tuple[str, ...]:
    """Return the host functions that the sources name, sorted (`apps.mail.send`); `apps` where they only say `apps`."""
    found: set[str] = set()
    for skill in skills:
        roots, nodes = roots_of(skill), list(ast.walk(skill.function))
        named = {dotted(node) for node in nodes if isinstance(node, ast.Attribute | ast.Name) and host(node, roots)}
        whole = {name for name in named if not any(other.startswith(f"{name}.") for other in named)}
        found |= whole or roots
    return tuple(sorted(found))


def write(skills: Sequence[Skill]) -> str:
    """Return the script of the last of these skills; the others are what it requires.

    Raises `BadInput` for a skill that is called as the command is, and for a source with a `from __future__` import,
    which would have to be the first line of the file.
    """
    main = skills[-1]
    for skill in skills:
        if skill.name == COMMAND:
            raise BadInput(f"a script's own command is called {COMMAND!r}; rename the skill")
        if any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in ast.walk(ast.parse(skill.source))):
            raise BadInput(
                f"skill {skill.name!r} imports from __future__, which a script cannot hold; write it without"
            )
    bodies = "".join(
        _BEGINS.format(name=one.name, length=len(one.source)) + one.source + _ENDS.format(name=one.name)
        for one in skills
    )
    tail = _TAIL.format(command=_command_text(), start=COMMAND, name=main.name, needs=host_functions(skills))
    return _HEAD.format(name=main.name) + bodies + tail


def sources(script: str) -> dict[str, str]:
    """Return name -> source of a script of ours, in order; empty for a script of others.

    A source that somebody edited ends at its mark, wherever that stands now.
    """
    return dict(_marked(script))


def _marked(script: str) -> Iterator[tuple[str, str]]:
    at = 0
    while begin := _BEGIN.search(script, at):
        name, start = begin[1], begin.end()
        end = re.compile(_END.format(name=re.escape(name)))
        exact = end.match(script, start + int(begin[2]))
        closing = exact or end.search(script, start)
        if closing is None:
            return
        yield name, script[start : closing.start()]
        at = closing.end()


@cache
def _command_text() -> str:
    text = _COMMAND.read_text(encoding="utf-8")
    return text[text.index(f"\ndef {COMMAND}") + 1 :].rstrip()
