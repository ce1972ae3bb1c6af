"""From the operations a general model names to deltas, one by one: an unusable one does not spoil the batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from memory.operations import op_id, removal
from memory.records import DeltaOp, Op, Record, Trust
from playbooks.bullets import Bullet, clean_text, match_section
from playbooks.citations import resolve
from playbooks.full import Operation
from playbooks.lessons import Lesson, add_op, agree_op, edit_op

_ALIASES = {"UPDATE": "EDIT", "DELETE": "REMOVE", "KEEP": "NONE", "CREATE": "ADD"}
_ECHO = re.compile(r"^\s*(?:[-*]\s+)?\[[a-z][a-z0-9_]*-\d+\]\s*(?:helpful=\d+\s+harmful=\d+\s*::)?\s*", re.IGNORECASE)


def translate(
    operation: Operation, lesson: Lesson, shown: Sequence[Record[Any]], trust: Trust
) -> tuple[DeltaOp, ...] | None:
    """Return the deltas that an operation means; none are needed for a rule already known and already judged.

    None when the operation is unusable: an unknown type, or a target that was not shown.
    """
    kind = operation.type.strip().upper()
    kind = _ALIASES.get(kind, kind)
    content = clean_text(_ECHO.sub("", operation.content))
    if kind == "ADD":
        return (add_op(lesson, trust, content=content, section=operation.section),)
    if kind == "MERGE":
        return _merge(operation, lesson, shown, trust)
    target = resolve(operation.target or next(iter(operation.targets), ""), shown)
    if target is None:
        return None
    if kind == "EDIT":
        return (edit_op(lesson, target, trust, content=content),)
    if kind == "NONE":
        agreed = agree_op(lesson, target, trust)
        return () if agreed is None else (agreed,)
    return (_remove(operation, target, lesson, trust),) if kind == "REMOVE" else None


def _merge(
    operation: Operation, lesson: Lesson, shown: Sequence[Record[Any]], trust: Trust
) -> tuple[DeltaOp, ...] | None:
    named = [resolve(reference, shown) for reference in operation.targets]
    parents = list({record.id: record for record in named if record is not None}.values())
    if len(parents) == 1:
        return (edit_op(lesson, parents[0], trust, content=clean_text(_ECHO.sub("", operation.content))),)
    if not parents:
        return None
    bullet = Bullet(
        section=match_section(operation.section) or parents[0].payload.section,
        content=_ECHO.sub("", operation.content) or lesson.insight.content,
        cue=lesson.insight.cue,
        action=lesson.insight.action,
        origin_query=parents[0].payload.origin_query,
    )
    op = DeltaOp(
        op=Op.MERGE,
        op_id=op_id("merge", *sorted(p.id for p in parents), bullet.content),
        parent_ids=tuple(parent.id for parent in parents),
        payload=bullet.model_dump(mode="json"),
        provenance=lesson.provenance(trust),
        reason=operation.reason,
    )
    return (op,)


def _remove(operation: Operation, target: Record[Any], lesson: Lesson, trust: Trust) -> DeltaOp:
    reason = operation.reason or f"contradicted by: {lesson.insight.content}"
    return removal(target, op_id("remove", target.id, *lesson.trajectory_ids), reason, lesson.provenance(trust))
