"""Prose in a skill's code: its docstrings, comments and literals, which a prompt shows on demand. Pure."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from skills.names import Function
from skills.record import Skill

_SPEAKERS = frozenset({"system", "assistant"})
"""Parameters of these names are no excuse for a docstring line that begins like somebody's turn."""


def prose(skill: Skill) -> tuple[str, ...]:
    """Return the texts in a skill's source: docstrings, all comments as one text, each other literal; none is empty.

    A docstring's `name:` that documents a parameter is left out, and so is the colon that ends a literal: neither
    speaks for anybody.
    """
    texts = [*_docstrings(skill), _comments(skill.source), *_literals(skill)]
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def _docstrings(skill: Skill) -> Iterator[str]:
    for function in (node for node in ast.walk(skill.function) if isinstance(node, Function)):
        args = function.args
        names = {each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs)} - _SPEAKERS
        text = ast.get_docstring(function) or ""
        yield re.sub(rf"(?m)^[ \t]*(?:{'|'.join(names)})[ \t]*:", "", text) if names else text


def _comments(source: str) -> str:
    """Return the comments, a line each; all of the source where it cannot be told what is one."""
    text = re.sub(r"\r\n?", "\n", source)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    return "\n".join(token.string.lstrip("#! ") for token in tokens if token.type == tokenize.COMMENT)


def _literals(skill: Skill) -> Iterator[str]:
    said = {
        id(node.body[0].value)
        for node in ast.walk(skill.function)
        if isinstance(node, Function) and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(skill.function):
        if isinstance(node, ast.Constant) and id(node) not in said and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield text.rstrip().removesuffix(":")
