"""The parts that every curator shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memory.records import DeltaOp, Insight, Op, Provenance, Reflection, Trust
from playbooks.kinds.bullet import Bullet
from playbooks.lessons import Known, add_op, collect, direct_op, with_origin
from playbooks.view import RecordView

Make = Callable[..., Any]


def reflection(content: str, **fields: Any) -> Reflection:
    insight = Insight(content=content, cue=fields.pop("cue", ""), action=fields.pop("action", ""))
    return Reflection(trajectory_id="t", task_id="pay", insights=(insight,), author="test", **fields)


def test_origin_is_filled_for_new_bullets_only() -> None:
    (lesson,) = collect([reflection("Log in first.")])
    ops = (
        add_op(lesson, Trust.VERIFIED),
        DeltaOp(op=Op.REMOVE, target_id="x", provenance=Provenance(task_ids=("pay",))),
    )
    filled = with_origin(ops, {"pay": "pay Rodor\nfor lunch"})
    assert Bullet.model_validate(filled[0].payload).origin_query == "pay Rodor\nfor lunch"
    assert filled[1] == ops[1]
    assert with_origin(ops, {"other": "y"}) == ops


def test_a_refuted_rule_at_the_same_cue_is_replaced_a_second_prerequisite_is_added(bullet: Make) -> None:
    known = bullet(1, "pay.request: before it must come unlock", cue="before pay.request", action="pay.unlock")
    view = RecordView([known])
    said = {"content": "pay.request: before it must come verify", "cue": "before pay.request", "action": "pay.verify"}
    (second,) = collect([reflection(**said)])
    (refuting,) = collect([reflection(**said, tags={known.id: "harmful"})])
    added = direct_op(second, Known(view), Trust.VERIFIED)
    edited = direct_op(refuting, Known(view), Trust.VERIFIED)
    assert added is not None
    assert edited is not None
    assert added.op is Op.ADD
    assert (edited.op, edited.target_id) == (Op.EDIT, known.id)
    assert Bullet.model_validate(edited.payload).action == "pay.verify"


def test_what_the_operator_pinned_is_not_replaced(bullet: Make) -> None:
    view = RecordView([bullet(1, "pay.send: amount must be cents", pinned=True)])
    (lesson,) = collect([reflection("pay.send: amount must be dollars")])
    op = direct_op(lesson, Known(view), Trust.VERIFIED)
    assert op is not None
    assert op.op is Op.ADD
