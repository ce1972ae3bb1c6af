"""Writes `workspace_v1.db`, a small workspace of schema version 1, and `workspace_v1.json`, what it must say for ever.

Run once by the version that wrote schema 1; later versions must open the result, never make it again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from memory.embedders.hashing import HashingEmbedder
from memory.kinds import register
from memory.records import DeltaOp, Op, Payload, Provenance, Step, Task, Trajectory, Trust, UsageCounts
from memory.store import Store

HERE = Path(__file__).parent


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


def fill(store: Store) -> None:
    """Let everything happen once that leaves a trace."""
    origin = Provenance(trust=Trust.VERIFIED, task_ids=("task-1",), run_id="run-1", author="rules")
    texts = ("dates are written day first", "pages start at 1", "ask before paying")
    ops = [DeltaOp(op=Op.ADD, kind="fact", payload={"content": text}, provenance=origin) for text in texts]
    ids = [result.record_id or "" for result in store.commit("default", ops, actor="curator", run_id="run-1").results]
    first = store.snapshot("default")
    changes = [
        DeltaOp(op=Op.TAG, target_id=ids[0], usage=UsageCounts(injected=3, helpful=2)),
        DeltaOp(op=Op.EDIT, kind="fact", target_id=ids[1], payload={"content": "pages start at 0"}, base_version=1),
        DeltaOp(op=Op.MERGE, kind="fact", parent_ids=(ids[0], ids[2]), payload={"content": "dates day first; ask"}),
        DeltaOp(op=Op.EDIT, kind="fact", target_id=ids[1], payload={"content": "stale"}, base_version=1),
    ]
    store.commit("default", changes, actor="curator", run_id="run-1")
    store.rollback("default", first.id, actor="operator")
    task = Task(id="task-1", instruction="pay the bill", scenario="bills-1")
    store.add_trajectory(Trajectory(task=task, steps=(Step(index=0, action="pay()"),), run_id="run-1"))
    store.put_reply("key", {"text": "pay()"}, task_id="task-1")
    store.put_run("run-1", {"state": "done"})


def main() -> None:
    """Make both files."""
    path = HERE / "workspace_v1.db"
    path.unlink(missing_ok=True)
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        fill(store)
        records = [[r.label, r.version, r.payload.content] for r in store.view("default").records()]
        said = {"records": records, "snapshot": store.snapshot("default").id, "position": store.journal.position()}
        store.journal.query("VACUUM")
        store.journal.query("PRAGMA wal_checkpoint(TRUNCATE)")
    Path(f"{path}.migrate.lock").unlink(missing_ok=True)
    (HERE / "workspace_v1.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
