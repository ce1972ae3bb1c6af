"""The head of a SKILL.md: YAML between `---`, read as the specification's parser does or leniently, and written.

The reference parser (agentskills, skills-ref) splits at the first two `---` wherever they stand and reads strict YAML:
no flow style, anchors, tags or repeated keys; every value is text. So what is written here is double-quoted JSON on
one line, and `---` in a value becomes an em dash.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent, ScalarEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

Value = str | list[str] | dict[str, str]
"""Text, a list of texts (which no field of a valid head has), or the map `metadata`."""

FENCE = "---"
_DEPTH = 8
_PAIR = re.compile(r"([\w-]+):[ \t]+(.*?)[ \t]*")
_CLOSING = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)


class Malformed(ValueError):
    """The head cannot be read; the text says why."""


def strict(text: str) -> tuple[dict[str, Value], str]:
    """Return (head, body) as the reference parser reads them. Raises `Malformed` where it would."""
    if not text.startswith(FENCE):
        raise Malformed(
            "SKILL.md must start with `---`" + (", without a byte order mark" if text[:1] == "\ufeff" else "")
        )
    parts = text.split(FENCE, 2)
    if len(parts) < 3:
        raise Malformed("the frontmatter is not closed with `---`")
    for event in _events(parts[1]):
        _plain(event)
    return _head(parts[1], loose=False), parts[2].strip()


def lenient(text: str) -> tuple[dict[str, Value], str]:
    """Return (head, body) of what somebody may have written by hand; values that break YAML are quoted and read again.

    Raises `Malformed` when that does not help either.
    """
    text = text.removeprefix("\ufeff").lstrip()
    closing = _CLOSING.search(text, len(FENCE))
    if not text.startswith(FENCE) or closing is None:
        raise Malformed("SKILL.md has no frontmatter between two lines `---`")
    head, body = text[len(FENCE) : closing.start()], text[closing.end() :].strip()
    try:
        return _head(head, loose=True), body
    except Malformed:
        return _head("\n".join(map(_quoted, head.splitlines())), loose=True), body


def write(head: Mapping[str, str | Mapping[str, str]]) -> str:
    """Return the head with its fences, ready to be followed by the body."""
    lines = [FENCE]
    for name, value in head.items():
        if isinstance(value, str):
            lines.append(f"{name}: {_scalar(value)}")
        elif value:
            lines += [f"{name}:", *(f"  {key}: {_scalar(item)}" for key, item in value.items())]
    return "\n".join([*lines, FENCE]) + "\n"


def safe(text: str) -> str:
    """Return `text` as it may stand in a head: one line, printable, no `---`."""
    line = " ".join(text.split())
    return re.sub("-{3,}", "—", "".join(char for char in line if _printable(char)))


def _printable(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cs", "Cn", "Zl", "Zp") and char not in "\ufeff\ufffe\uffff"


def _scalar(value: str) -> str:
    return json.dumps(safe(value), ensure_ascii=False)


def _quoted(line: str) -> str:
    pair = _PAIR.fullmatch(line.rstrip())
    return f"{pair[1]}: {json.dumps(pair[2].strip(chr(34)), ensure_ascii=False)}" if pair and pair[2] else line


def _events(text: str) -> list[NodeEvent]:
    """Return the nodes of a YAML text as they stand there. An alias is refused (it could repeat itself for ever), and
    so is deep nesting, which takes a reader for ever."""
    found: list[NodeEvent] = []
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if depth > _DEPTH:
                raise Malformed("the frontmatter nests too deeply")
            if isinstance(event, NodeEvent):
                if isinstance(event, AliasEvent) or event.anchor:
                    raise Malformed("the frontmatter uses an anchor or an alias; write the value out")
                found.append(event)
    except yaml.YAMLError as error:
        raise Malformed(f"the frontmatter is no YAML ({' '.join(str(error).split())})") from error
    return found


def _plain(event: NodeEvent) -> None:
    """Raise `Malformed` for what strict YAML does without."""
    if isinstance(event, CollectionStartEvent) and event.flow_style:
        raise Malformed("the frontmatter uses flow style ([a, b] or {a: b}); write one value per line")
    if isinstance(event, ScalarEvent | CollectionStartEvent) and event.tag not in (None, "!"):
        raise Malformed(f"the frontmatter uses the tag {event.tag!r}; leave it out")


def _head(text: str, *, loose: bool) -> dict[str, Value]:
    _events(text)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise Malformed(f"the frontmatter is no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(root, MappingNode):
        raise Malformed("the frontmatter must be `name: value` lines")
    return {key: _value(node, loose) for key, node in _items(root, loose)}


def _items(node: MappingNode, loose: bool) -> list[tuple[str, Node]]:
    pairs = [(_text(key, loose), value) for key, value in node.value]
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice and not loose:
        raise Malformed(f"the frontmatter has {twice[0]!r} twice")
    return pairs


def _value(node: Node, loose: bool) -> Value:
    if isinstance(node, MappingNode):
        return {key: _text(value, loose) for key, value in _items(node, loose)}
    return [_text(item, loose) for item in node.value] if isinstance(node, SequenceNode) else _text(node, loose)


def _text(node: Node, loose: bool) -> str:
    """Return a scalar as written. What is nested deeper than a map of texts is refused, or returned as YAML."""
    if isinstance(node, ScalarNode):
        return str(node.value)
    if not loose:
        raise Malformed("the frontmatter nests too deeply: a value of `metadata` must be a text")
    return yaml.serialize(node).strip()
