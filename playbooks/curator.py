"""The Curators: reflections in, proposed deltas out. They change nothing.

`ModelCurator` asks a policy, in the profile that suits it; `DirectCurator` decides without a model.

From the operations a general model names to deltas, one by one: an unusable one does not spoil the batch.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

from memory.operations import op_id, removal
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Insight, Op, Record, Reflection, Trajectory, Trust
from playbooks import compact, full
from playbooks.asking import ask
from playbooks.citations import resolve
from playbooks.full import Operation
from playbooks.kinds.bullet import Bullet, clean_text, match_section
from playbooks.lessons import Known, Lesson, add_op, agree_op, collect, direct_op, edit_op, tag_ops
from playbooks.likeness import nearest
from playbooks.similarity import opposes
from policies.protocols import Message, Policy, Profile, SamplingParams

__all__ = ["DirectCurator", "ModelCurator", "curate_messages"]


def curate_messages(
    lessons: Insight | Sequence[Insight], candidates: Sequence[Record[Any]], profile: Profile
) -> list[Message]:
    """Return the prompt of the curate role for `profile`. Pure. The compact profile takes one lesson a call."""
    batch = (lessons,) if isinstance(lessons, Insight) else tuple(lessons)
    if profile == "full":
        return full.curate_prompt(batch, candidates)
    (lesson,) = batch
    return compact.curate_prompt(lesson, candidates)


class DirectCurator:
    """Adds what is new, speaks for what is known, replaces what a lesson contradicts. No model."""

    name = "direct"

    def __init__(self, *, trust: Trust = Trust.SELF_JUDGED) -> None:
        self._trust = trust

    def reads(self, trajectory: Trajectory, *, label_free: bool = False) -> str:
        """Return nothing: it is shown lessons, and no episode."""
        return ""

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the reflections' tags, then one op per lesson."""
        known = Known(view)
        ops = [direct_op(lesson, known, self._trust) for lesson in collect(reflections)]
        return _unique([*tag_ops(reflections, view), *ops])


class ModelCurator:
    """Asks `policy` how lessons change the playbook. Implements `playbooks.protocols.Curator`.

    A lesson whose answer cannot be parsed gives no op; it is handed to `keep` as a raw reflection (`parsed=False`, the
    lesson in it), so that it can be stored and tried again. `trust` is what the reflections rest on: `VERIFIED` with a
    graded outcome.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        trust: Trust = Trust.SELF_JUDGED,
        keep: Callable[[Reflection], object] | None = None,
        params: SamplingParams | None = None,
    ) -> None:
        self._policy = policy
        self._trust = trust
        self._keep = keep
        self._params = params or SamplingParams(max_tokens=64 if policy.profile == "compact" else 2048)

    @property
    def name(self) -> str:
        return f"model:{self._policy.name}"

    def reads(self, trajectory: Trajectory, *, label_free: bool = False) -> str:
        """Return nothing: it is shown lessons, and no episode."""
        return ""

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the reflections' tags, then the ops the policy asked for, in order of the lessons."""
        lessons = collect(reflections)
        ops: list[DeltaOp | None] = []
        if self._policy.profile == "compact":
            ops += await asyncio.gather(*(self._decide(lesson, view) for lesson in lessons))
        elif lessons:
            ops += await self._revise(lessons, view)
        return _unique([*tag_ops(reflections, view), *ops])

    async def _decide(self, lesson: Lesson, view: KnowledgeView) -> DeltaOp | None:
        """Ask about one lesson (compact). The lesson is taken directly where the answer cannot be right: about a target
        that was not shown, or that a rule which says the opposite says the same."""
        candidates = nearest(lesson.insight.content, view, Bullet.kind)
        messages = curate_messages(lesson.insight, candidates, "compact")
        decision, reply, raw = await ask(self._policy, messages, compact.CompactDecision, self._params)
        if decision is None:
            self._set_aside(lesson, raw, reply.usage)
            return None
        target = next((record for record in candidates if record.number == decision.target), None)
        if decision.op == "ADD" or target is None:
            return direct_op(lesson, Known(view), self._trust)
        if decision.op == "NONE":
            if opposes(lesson.insight.content, target.payload.content):
                return direct_op(lesson, Known(view), self._trust)
            return agree_op(lesson, target, self._trust)
        return edit_op(lesson, target, self._trust)

    async def _revise(self, lessons: Sequence[Lesson], view: KnowledgeView) -> list[DeltaOp | None]:
        """Ask about all lessons of the batch at once (full). A lesson without a usable operation is taken directly."""
        found = {r.id: r for lesson in lessons for r in nearest(lesson.insight.content, view, Bullet.kind)}
        candidates = tuple(found.values())
        messages = curate_messages([lesson.insight for lesson in lessons], candidates, "full")
        answer, reply, raw = await ask(self._policy, messages, full.FullCuration, self._params)
        if answer is None:
            for lesson in lessons:
                self._set_aside(lesson, raw, reply.usage)
            return []
        ops: list[DeltaOp | None] = []
        for number, lesson in enumerate(lessons, start=1):
            wanted = [o for o in answer.operations if o.lesson == number or (o.lesson is None and len(lessons) == 1)]
            translated = [translate(operation, lesson, candidates, self._trust) for operation in wanted]
            usable = [item for item in translated if item is not None]
            ops += [op for item in usable for op in item] if usable else [direct_op(lesson, Known(view), self._trust)]
        return ops

    def _set_aside(self, lesson: Lesson, raw: str, usage: Any) -> None:
        if self._keep is None:
            return
        self._keep(
            Reflection(
                trajectory_id=lesson.trajectory_ids[0],
                task_id=lesson.task_ids[0],
                insights=(lesson.insight,),
                raw=raw,
                parsed=False,
                author=self.name,
                usage=usage,
            )
        )


def _unique(ops: Sequence[DeltaOp | None]) -> tuple[DeltaOp, ...]:
    return tuple({op.op_id: op for op in ops if op is not None}.values())


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
        parent_versions=tuple(parent.version for parent in parents),
        payload=bullet.model_dump(mode="json"),
        provenance=lesson.provenance(trust),
        reason=operation.reason,
    )
    return (op,)


def _remove(operation: Operation, target: Record[Any], lesson: Lesson, trust: Trust) -> DeltaOp:
    reason = operation.reason or f"contradicted by: {lesson.insight.content}"
    return removal(target, op_id("remove", target.id, *lesson.trajectory_ids), reason, lesson.provenance(trust))
