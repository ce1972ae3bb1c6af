"""A process that writes to a shared workspace and reports after each commit (started by test_processes.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

from memory.embedders.hashing import HashingEmbedder
from memory.kinds import register
from memory.records import DeltaOp, Op, Payload, UsageCounts
from memory.store import Store


@register
class Fact(Payload):
    """The kind of the memory tests."""

    kind: ClassVar[str] = "fact"
    content: str
    topic: str = "tst"

    def text(self) -> str:
        return self.content

    def slug(self) -> str:
        return self.topic


def proposal(store: Store, shared: str, name: str, turn: int) -> DeltaOp:
    """Return the op of one turn: a new record, a count on the shared one, or an edit of it."""
    if turn % 3 == 0:
        return DeltaOp(op=Op.ADD, kind="fact", payload={"content": f"{name} saw {turn}"})
    if turn % 3 == 1:
        return DeltaOp(op=Op.TAG, target_id=shared, usage=UsageCounts(helpful=1))
    record = store.get(shared)
    base = record.version if record else 0
    return DeltaOp(op=Op.EDIT, kind="fact", target_id=shared, payload={"content": f"{name} {turn}"}, base_version=base)


def main(path: str, shared: str, name: str, turns: str) -> None:
    """Write `turns` ops, one commit each, printing `[op, op_id, applied, reason]` when each has returned."""
    with Store.open(Path(path), embedder=HashingEmbedder(), index="exact") as store:
        for turn in range(int(turns)):
            op = proposal(store, shared, name, turn)
            (result,) = store.commit("default", [op], actor=name).results
            sys.stdout.write(json.dumps([op.op, op.op_id, result.applied, result.reason]) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
