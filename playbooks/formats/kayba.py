"""The skillbook JSON of kayba's agentic-context-engine.

Writes the layout of its version 0.9 (`content`, `helpful`, `harmful`, `neutral`); reads that one, the older `bullets`
layout and schema version 2 (`issue`, `insight`, `*_count`). Entries it marked as removed are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from memory.errors import BadInput
from memory.records import Record, UsageCounts
from playbooks.formats.entry import Entry, Format, by_section, make_entry
from playbooks.kinds.bullet import OTHERS

_COUNTS = ("helpful", "harmful", "neutral")


def dump(items: Sequence[Entry | Record[Any]]) -> str:
    """Return the playbook as skillbook JSON."""
    skills: dict[str, dict[str, Any]] = {}
    sections: dict[str, list[str]] = {}
    for section, group in by_section(items):
        for entry in group:
            sections.setdefault(section, []).append(entry.label)
            counts = {name: getattr(entry.usage, name) for name in _COUNTS}
            content = {"id": entry.label, "section": section, "content": entry.bullet.content}
            skills[entry.label] = {**content, **counts, "status": "active"}
    last = max((int(label.rpartition("-")[2]) for label in skills), default=0)
    book = {"skills": skills, "sections": sections, "next_id": last, "similarity_decisions": {}}
    return json.dumps(book, ensure_ascii=False, indent=2) + "\n"


def load(text: str) -> list[Entry]:
    """Return the entries of a skillbook. Raises `BadInput` for text that is none."""
    try:
        book = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"no skillbook: {error}; expected the JSON file that kayba's skillbook saves") from None
    items = next((book[key] for key in ("skills", "bullets") if key in book), None) if isinstance(book, dict) else None
    if not isinstance(items, dict | list):
        raise BadInput("no skillbook: expected an object with `skills` (or `bullets`); check the file")
    pairs = items.items() if isinstance(items, dict) else enumerate(items)
    return [_entry(str(key), item) for key, item in pairs if not _is_removed(str(key), item)]


def _is_removed(key: str, item: Any) -> bool:
    if not isinstance(item, dict):
        raise BadInput(f"skill {key!r}: expected an object, got {item!r:.80}; mend that entry")
    return item.get("status", "active") != "active" or item.get("active") is False


def _entry(key: str, item: Mapping[str, Any]) -> Entry:
    insight, issue = item.get("insight"), item.get("issue")
    content = item.get("content") or insight or issue
    usage = {name: _count(item, name) for name in _COUNTS}
    return make_entry(
        {
            "section": item.get("section") or OTHERS,
            "content": content,
            "when": issue if insight and issue and content == insight else "",
        },
        label=str(item.get("id") or key),
        usage=UsageCounts(**usage, injected=_count(item, "used")),
        where=f"skill {key!r}",
    )


def _count(item: Mapping[str, Any], name: str) -> int:
    value = cast("object", item.get(name, item.get(f"{name}_count", 0)))
    return value if isinstance(value, int) and value >= 0 else 0


MEMBER = Format(load, dump)
