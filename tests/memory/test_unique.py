"""Kinds that are called by a name: one record in use has it, whoever brings another one into use, and in which way."""

from __future__ import annotations

from typing import Any, ClassVar

from memory.kinds import register
from memory.records import DeltaOp, Op, Payload, Status
from memory.store import Store

BOTH_ENGINES = True


@register
class Named(Payload):
    """A kind whose records are called by their names."""

    kind: ClassVar[str] = "named"
    name: str
    does: str = "it"

    def text(self) -> str:
        return f"{self.name} does {self.does}"

    def unique(self) -> str:
        return self.name


def op(kind: Op, name: str = "", does: str = "it", **fields: Any) -> DeltaOp:
    return DeltaOp(op=kind, kind="named", payload={"name": name, "does": does} if name else None, **fields)


def test_a_name_is_in_use_once_by_whatever_op_it_comes(store: Store) -> None:
    ops = [op(Op.ADD, "pay"), op(Op.ADD, "send"), op(Op.ADD, "pay", status=Status.CANDIDATE)]
    pay, send, waiting = (result.record_id for result in store.commit("default", ops, actor="t").results)
    for second in (
        op(Op.ADD, "pay", "more"),
        op(Op.EDIT, "pay", "more", target_id=send, base_version=1),
        op(Op.SUPERSEDE, "pay", "more", target_id=send),
        op(Op.RESTORE, target_id=waiting, status=Status.ACTIVE),
    ):
        (result,) = store.commit("default", [second], actor="t").results
        assert "named-00001 is in use and named 'pay'" in result.reason
        assert not result.applied
    (edit,) = store.commit("default", [op(Op.EDIT, "pay", "more", target_id=pay, base_version=1)], actor="t").results
    (new,) = store.commit("default", [op(Op.SUPERSEDE, "pay", "less", target_id=pay)], actor="t").results
    assert edit.applied
    assert new.applied
    store.commit("default", [op(Op.REMOVE, target_id=new.record_id)], actor="t")
    (third,) = store.commit("default", [op(Op.RESTORE, target_id=waiting, status=Status.ACTIVE)], actor="t").results
    assert third.applied


def test_an_edit_leaves_the_status_which_says_whether_a_name_is_brought_into_use(store: Store) -> None:
    ops = [op(Op.ADD, "pay"), op(Op.ADD, "send"), op(Op.ADD, "pay", status=Status.CANDIDATE)]
    _, send, waiting = (result.record_id for result in store.commit("default", ops, actor="t").results)
    (edited,) = store.commit("default", [op(Op.EDIT, "pay", "more", target_id=waiting)], actor="t").results
    assert edited.applied
    taken = op(Op.EDIT, "pay", "more", target_id=send, status=Status.CANDIDATE)
    restored = op(Op.RESTORE, target_id=waiting, status=Status.ACTIVE)
    for result in store.commit("default", [taken, restored], actor="t").results:
        assert "named-00001 is in use and named 'pay'" in result.reason


def test_a_name_counts_in_its_own_namespace_and_other_kinds_have_none(store: Store) -> None:
    assert [store.commit(name, [op(Op.ADD, "pay")], actor="t").results[0].applied for name in ("a", "b")] == [True] * 2
    facts = [DeltaOp(op=Op.ADD, kind="fact", payload={"content": "the same"}) for _ in range(2)]
    assert [result.applied for result in store.commit("a", facts, actor="t").results] == [True, True]
