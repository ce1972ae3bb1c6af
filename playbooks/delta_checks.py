"""Per-op validation of proposed deltas: pure, partial accept, a reason for every refusal.

This is the playbook's own reading of an op (is it a sensible change of this knowledge?). The store checks again what
only it can know (versions at commit time, op ids of the past); nothing here changes state.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from memory.base import first_error
from memory.errors import BadInput
from memory.kinds import payload_class
from memory.protocols import KnowledgeView
from memory.records import RECALLABLE, DeltaOp, Frozen, Op, Payload, Record, Status, Trust
from playbooks.kinds.bullet import SECTIONS, Bullet, match_section
from playbooks.kinds.exemplar import Exemplar
from playbooks.similarity import exact_key
from playbooks.texts import TextIndex, texts_of

MAX_CHARS = 2000
MIN_PARENTS = 2

_CREATES = frozenset({Op.ADD, Op.MERGE, Op.SUPERSEDE})
_WRITES = _CREATES | {Op.EDIT}
_PROTECTED = frozenset({Op.EDIT, Op.SUPERSEDE, Op.MERGE, Op.REMOVE})
_FORGED = re.compile(r"^\s*(?:##\s*)?\[[a-z][a-z0-9_]*-\d+\]\s*(?:helpful=\d+|::)", re.IGNORECASE | re.MULTILINE)
_CONTROL = re.compile(r"<\|[^|<>\n]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]|</?s>", re.IGNORECASE)


class Rules(Frozen):
    """What a valid op may look like."""

    max_chars: int = MAX_CHARS
    max_exemplar_chars: int = MAX_CHARS
    """Of an exemplar, which is as long as the turns that it shows."""
    near_duplicate: float = 0.9
    """TF-IDF cosine from which a new text repeats an old one."""


class Validated(Frozen):
    """The ops that may go on, in their order, and why the others may not."""

    accepted: tuple[DeltaOp, ...]
    rejected: dict[str, str]
    """op_id -> reason."""


def validate(ops: Sequence[DeltaOp], view: KnowledgeView, *, rules: Rules | None = None) -> Validated:
    """Check each op against the view and the ops accepted before it."""
    batch = _Batch(view, rules or Rules())
    accepted: list[DeltaOp] = []
    rejected: dict[str, str] = {}
    for op in ops:
        reason = batch.refusal(op)
        if reason:
            rejected.setdefault(op.op_id, reason)
        else:
            batch.take(op)
            accepted.append(op)
    return Validated(accepted=tuple(accepted), rejected=rejected)


class _Batch:
    """The view as the ops accepted so far will have left it."""

    def __init__(self, view: KnowledgeView, rules: Rules) -> None:
        self._view = view
        self._rules = rules
        self._seen: set[str] = set()
        self._changed: set[str] = set()
        self._texts: dict[str, TextIndex] = {}
        """kind -> the texts by record or op id"""

    def refusal(self, op: DeltaOp) -> str:
        """Return why the op is refused, or an empty text."""
        if op.op_id in self._seen:
            return f"op id {op.op_id!r} occurs twice in this batch"
        return self._target_refusal(op) or (self._content_refusal(op) if _says(op) else "")

    def take(self, op: DeltaOp) -> None:
        """Remember an accepted op."""
        self._seen.add(op.op_id)
        if op.op in _PROTECTED:
            self._changed.update(_targets(op))
            for target in _targets(op):
                self._known(op.kind).remove(target)
        if _says(op):
            self._known(op.kind).add(op.op_id, _payload(op).compared())

    def _target_refusal(self, op: DeltaOp) -> str:
        targets = _targets(op)
        if op.op is Op.MERGE and len(set(targets)) < MIN_PARENTS:
            return f"MERGE needs {MIN_PARENTS} different parents; got {list(targets)!r}"
        for target in targets:
            record = self._view.get(target)
            if record is None or record.namespace != self._view.namespace:
                return f"target {target!r} is not in namespace {self._view.namespace!r}"
            reason = self._state_refusal(op, record)
            if reason:
                return reason
        return ""

    def _state_refusal(self, op: DeltaOp, record: Record[Any]) -> str:
        if record.id in self._changed and op.op is not Op.TAG:
            return f"{record.label} was changed by an earlier op of this batch"
        if op.op is Op.TAG:
            return ""
        if op.op is Op.RESTORE:
            same = (op.status, op.pinned) == (record.status, record.pinned)
            return f"{record.label} is {record.status} already" if same else ""
        if record.status not in RECALLABLE | {Status.CANDIDATE}:
            return f"{record.label} is {record.status}; RESTORE it first"
        if record.pinned and op.provenance.trust is not Trust.OPERATOR:
            return f"{record.label} is pinned by the operator"
        if op.op is not Op.REMOVE and (base := op.base_of(record.id)) not in (None, record.version):
            return f"{record.label} is at version {record.version}; the op was written against {base}"
        return ""

    def _content_refusal(self, op: DeltaOp) -> str:
        try:
            payload = _payload(op)
        except ValidationError as invalid:
            return f"payload is no {op.kind}: {first_error(invalid, 'object')}"
        except BadInput as unknown:
            return str(unknown)
        text = payload.text()
        if not re.search(r"\w", text):
            return "content is empty"
        most = self._rules.max_exemplar_chars if op.kind == Exemplar.kind else self._rules.max_chars
        if len(text) > most:
            return f"content has {len(text)} characters; at most {most} are allowed"
        if _FORGED.search(text):
            return "content imitates a playbook line (header injection)"
        if _CONTROL.search(text):
            return "content holds a chat delimiter (header injection)"
        return self._section_refusal(payload) or self._duplicate_refusal(op, payload)

    def _section_refusal(self, payload: Payload) -> str:
        if not isinstance(payload, Bullet) or match_section(payload.section):
            return ""
        return f"unknown section {payload.section!r}; known: {', '.join(SECTIONS)}"

    def _duplicate_refusal(self, op: DeltaOp, payload: Payload) -> str:
        text = payload.compared()
        target = self._view.get(op.target_id) if op.target_id else None
        if target is not None and target.payload == payload and op.op is not Op.RESTORE:
            return f"changes nothing in {target.label}"
        known = self._known(op.kind)
        found = known.duplicate_of(text, threshold=self._rules.near_duplicate, skip=_targets(op))
        if found is None:
            return ""
        record = self._view.get(found[0])
        label = f"op {found[0]}" if record is None else record.label
        if exact_key(known.text(found[0])) == exact_key(text):
            return f"exact duplicate of {label}"
        return f"near duplicate of {label} (cosine {found[1]:.2f})"

    def _known(self, kind: str) -> TextIndex:
        if kind not in self._texts:
            self._texts[kind] = texts_of(self._view, kind)
        return self._texts[kind]


def _says(op: DeltaOp) -> bool:
    """Tell whether the op brings a text into use: a RESTORE that carries its target's words is read like a new one."""
    return op.op in _WRITES or (op.op is Op.RESTORE and op.payload is not None)


def _targets(op: DeltaOp) -> tuple[str, ...]:
    return op.parent_ids if op.op is Op.MERGE else (op.target_id,) if op.target_id else ()


def _payload(op: DeltaOp) -> Payload:
    return payload_class(op.kind).model_validate(op.payload or {})
