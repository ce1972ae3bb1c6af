"""The `skill` kind: one typed Python function that worked, with what it was made from and what proves it.

The source is kept to the byte and is the truth: name, signature and docstring are read off it. A skill runs only in the
sandbox. Indexed is the *query that created it*, not its code (SAGE, arXiv 2512.17102: search by query is as good as by
scenario, search by skill is worst).
"""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from typing import ClassVar

from pydantic import field_validator, model_validator

from memory.kinds import register
from memory.records import Frozen, Payload
from skills.names import DEEPEST, is_shallow

MAX_SOURCE = 8_000
"""Most characters of a skill's source."""


def body_hash(source: str) -> str:
    """Return sha256 of a function's source as hex: what says that a skill that ran is the one that was stored."""
    return hashlib.sha256(source.encode()).hexdigest()


@lru_cache(maxsize=4096)
def function_of(source: str) -> ast.FunctionDef:
    """Return the function that a skill's source defines.

    Raises `ValueError` unless it is imports and one `def`, nested no deeper than can be read.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"a skill is a Python function, this does not parse: {error}") from error
    found = [node for node in body if isinstance(node, ast.FunctionDef)]
    rest = [node for node in body if not isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom)]
    if len(found) != 1 or rest:
        other = type(rest[0]).__name__ if rest else f"{len(found)} functions"
        raise ValueError(f"a skill is imports and one top-level `def`; got {other}")
    if not is_shallow(found[0]):
        raise ValueError(f"a skill is nested at most {DEEPEST} levels deep; take it apart")
    if found[0].decorator_list:
        raise ValueError(f"a skill has no decorators; got @{ast.unparse(found[0].decorator_list[0])}")
    return found[0]


class SkillTest(Frozen):
    """One check of a skill: code that calls it and asserts. It passes when it ends without an error."""

    code: str
    task_id: str = ""
    """The task in whose world it runs; empty = it needs none."""


class Skill(Payload):
    """One skill. Versions, status, provenance and counters belong to the record around it."""

    kind: ClassVar[str] = "skill"

    source: str
    summary: str = ""
    """One line: what it does and when to use it. The docstring's first line where none is given."""
    origin: str = ""
    """Instruction of the task it was made from."""
    scenario: str = ""
    """Scenario of that task."""
    requires: tuple[str, ...] = ()
    """Names of the skills it calls."""
    examples: tuple[str, ...] = ()
    """Calls of it, as code."""
    tests: tuple[SkillTest, ...] = ()

    @field_validator("source")
    @classmethod
    def _one_function(cls, value: str) -> str:
        if len(value) > MAX_SOURCE:
            raise ValueError(f"a skill has at most {MAX_SOURCE} characters; got {len(value)}")
        function_of(value)
        return value

    @field_validator("summary", "origin")
    @classmethod
    def _line(cls, value: str) -> str:
        return " ".join(value.split())

    @model_validator(mode="after")
    def _not_itself(self) -> Skill:
        if self.name in self.requires:
            raise ValueError(f"{self.name} cannot require itself")
        return self

    @property
    def function(self) -> ast.FunctionDef:
        """The function, parsed. Shared: do not change it."""
        return function_of(self.source)

    @property
    def definition(self) -> str:
        """The source of the function alone, to the byte."""
        return ast.get_source_segment(self.source, self.function) or ""

    @property
    def imports(self) -> tuple[ast.Import | ast.ImportFrom, ...]:
        """The import statements around the function."""
        body = ast.parse(self.source).body
        return tuple(node for node in body if isinstance(node, ast.Import | ast.ImportFrom))

    @property
    def name(self) -> str:
        """Its name, by which it is called: at most one skill in use of a namespace has it."""
        return self.function.name

    @property
    def signature(self) -> str:
        """Its parameters and what it returns: `(to: str, text: str) -> int`."""
        returns = f" -> {ast.unparse(self.function.returns)}" if self.function.returns else ""
        return f"({ast.unparse(self.function.args)}){returns}"

    @property
    def doc(self) -> str:
        """Its docstring, cleaned; empty without one."""
        return ast.get_docstring(self.function) or ""

    @property
    def sha256(self) -> str:
        """`body_hash` of the source."""
        return body_hash(self.source)

    def described(self) -> str:
        """Return the one line that says what it is for."""
        return self.summary or self.doc.split("\n", 1)[0].strip()

    def text(self) -> str:
        """Return its line in the catalogue: name, signature, description."""
        return f"{self.name}{self.signature}: {self.described()}"

    def key(self) -> str:
        """Return the query that created it, or else its description, or else its name: what is embedded."""
        return self.origin or self.described() or self.name

    def unique(self) -> str:
        """Return its name."""
        return self.name

    def slug(self) -> str:
        """Return the prefix of the record's label."""
        return "skill"


register(Skill)
