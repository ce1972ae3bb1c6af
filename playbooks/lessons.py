"""From lessons to deltas, without a model: the parts that every curator shares. Pure.

Op ids follow from the content, so that curating the same reflections twice proposes the same ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory.operations import op_id
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Insight, Op, Provenance, Record, Reflection, Tag, Trust, UsageCounts
from playbooks.kinds.bullet import DEFAULT_SECTION, Bullet, clean_text, match_section
from playbooks.similarity import exact_key
from playbooks.texts import texts_of
from playbooks.view import bullets

_COUNTS: dict[Tag, UsageCounts] = {
    "helpful": UsageCounts(helpful=1),
    "harmful": UsageCounts(harmful=1),
    "neutral": UsageCounts(neutral=1),
}


class Lesson(Frozen):
    """One insight of a batch, with every reflection that came to it."""

    insight: Insight
    trajectory_ids: tuple[str, ...]
    task_ids: tuple[str, ...]
    author: str
    harmful: tuple[str, ...] = ()
    """Ids of the records that these reflections tagged harmful."""

    def provenance(self, trust: Trust) -> Provenance:
        """Return where a record made of this lesson comes from."""
        return Provenance(trust=trust, trajectory_ids=self.trajectory_ids, task_ids=self.task_ids, author=self.author)


class Known:
    """The bullets of a view, ready to be compared with lessons."""

    def __init__(self, view: KnowledgeView) -> None:
        self.records = {record.id: record for record in bullets(view)}
        self.texts = texts_of(view, Bullet.kind)


def collect(reflections: Sequence[Reflection]) -> tuple[Lesson, ...]:
    """Return the lessons of a batch in order, exact duplicates joined. Unparsed reflections have none."""
    found: dict[str, Lesson] = {}
    for reflection in reflections:
        harmful = tuple(key for key, tag in reflection.tags.items() if tag == "harmful")
        for insight in reflection.insights if reflection.parsed else ():
            content = clean_text(insight.content)
            if not content:
                continue
            known = found.get(exact_key(content))
            found[exact_key(content)] = Lesson(
                insight=known.insight if known else insight.model_copy(update={"content": content}),
                trajectory_ids=_join(known.trajectory_ids if known else (), reflection.trajectory_id),
                task_ids=_join(known.task_ids if known else (), reflection.task_id),
                author=known.author if known else reflection.author,
                harmful=_join(known.harmful if known else (), *harmful),
            )
    return tuple(found.values())


def tag_ops(reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
    """Return one TAG for each tag of each reflection whose record is in the view."""
    return tuple(
        _tag_op(record, tag, (reflection.trajectory_id,), Provenance(author=reflection.author))
        for reflection in reflections
        for record_id, tag in sorted(reflection.tags.items())
        if (record := view.get(record_id)) is not None and record.namespace == view.namespace
    )


def add_op(lesson: Lesson, trust: Trust, *, content: str = "", section: str = "") -> DeltaOp:
    """Return an ADD of the lesson as a bullet; an unknown section becomes the lesson's own, then the default one."""
    insight = lesson.insight
    bullet = Bullet(
        section=match_section(section) or match_section(insight.section) or DEFAULT_SECTION,
        content=content or insight.content,
        cue=insight.cue,
        action=insight.action,
    )
    return DeltaOp(
        op=Op.ADD,
        op_id=op_id("add", bullet.section, bullet.content, *lesson.trajectory_ids),
        payload=bullet.model_dump(mode="json"),
        provenance=lesson.provenance(trust),
    )


def edit_op(lesson: Lesson, record: Record[Any], trust: Trust, *, content: str = "") -> DeltaOp:
    """Return an EDIT that gives the record the lesson's content, cue and action, and keeps the rest."""
    insight = lesson.insight
    new = {"content": content or insight.content, "cue": insight.cue, "action": insight.action}
    bullet = Bullet.model_validate({**record.payload.model_dump(mode="json"), **new})
    return DeltaOp(
        op=Op.EDIT,
        op_id=op_id("edit", record.id, bullet.content, *lesson.trajectory_ids),
        target_id=record.id,
        base_version=record.version,
        payload=bullet.model_dump(mode="json"),
        provenance=lesson.provenance(trust),
    )


def agree_op(lesson: Lesson, record: Record[Any], trust: Trust) -> DeltaOp | None:
    """Return a TAG helpful: the lesson was drawn again. None when its own reflections call the record harmful."""
    if record.id in lesson.harmful:
        return None
    return _tag_op(record, "helpful", lesson.trajectory_ids, lesson.provenance(trust))


def direct_op(lesson: Lesson, known: Known, trust: Trust) -> DeltaOp | None:
    """Return what the lesson changes, decided without a model.

    A duplicate of a known bullet speaks for it (TAG helpful); a bullet that says otherwise about the same thing, or
    that the same reflection found harmful at the same cue, is replaced (EDIT); anything else is new (ADD).
    """
    content, cue = lesson.insight.content, lesson.insight.cue
    same = known.texts.duplicate_of(content)
    if same is not None:
        return agree_op(lesson, known.records[same[0]], trust)
    harmful = [known.records[key] for key in lesson.harmful if key in known.records]
    wrong = [record for record in harmful if cue and record.payload.cue == cue]
    for record in (*wrong, *(known.records[key] for key in known.texts.opposed_to(content))):
        if not record.pinned:
            return edit_op(lesson, record, trust)
    return add_op(lesson, trust)


def with_origin(ops: Sequence[DeltaOp], instructions: Mapping[str, str]) -> tuple[DeltaOp, ...]:
    """Return the ops with `origin_query` of each new bullet filled from `instructions` (task id -> instruction)."""

    def filled(op: DeltaOp) -> DeltaOp:
        query = next((instructions[task] for task in op.provenance.task_ids if task in instructions), "")
        if op.op is not Op.ADD or op.kind != Bullet.kind or not query or not op.payload:
            return op
        return op.model_copy(update={"payload": {**op.payload, "origin_query": query}})

    return tuple(map(filled, ops))


def _tag_op(record: Record[Any], tag: Tag, trajectory_ids: Sequence[str], provenance: Provenance) -> DeltaOp:
    return DeltaOp(
        op=Op.TAG,
        op_id=op_id("tag", record.id, tag, provenance.author, *trajectory_ids),
        kind=record.kind,
        target_id=record.id,
        base_version=record.version,
        usage=_COUNTS[tag],
        provenance=provenance,
    )


def _join(known: tuple[str, ...], *more: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *more)))
