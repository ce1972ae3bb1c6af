"""Eight processes write to one workspace at the same time; every delta must be committed or reported, none lost."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kills import processes
from benchmarks.lives import configured, write
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op
from memory.store import Store

Report = tuple[str, str, bool, str]
"""`(op_id, op, applied, reason)` as the writer was told."""


@dataclass
class Fates:
    """What became of the deltas."""

    deltas: int
    committed: int
    refused: int
    lost: int
    """Neither committed nor reported, or reported otherwise than the journal says."""
    without_effect: int
    """Committed, but not to be seen in the state."""
    findings: list[str]


def write_together(root: Path, writers: int, turns: int) -> Fates:
    """Let `writers` processes commit `turns` deltas each; the first of them owns the vector index."""
    root.mkdir(parents=True)
    config = configured(root, 1, "chroma")
    with open_store(config) as store:
        first = DeltaOp(op=Op.ADD, payload={"content": "shared"})
        shared = store.commit("default", [first], actor="benchmark").results[0].record_id or ""
    names = [f"writer-{number}" for number in range(writers)]
    children = [
        processes.Process(target=write, args=(config, shared, name, turns), kwargs={"owner": name == names[0]})
        for name in names
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    said = {report[0]: report for name in names for report in _reports(root / f"{name}.jsonl")}
    with open_store(config) as store:
        return _fates(store, said, {f"{name}/{turn}" for name in names for turn in range(turns)}, shared)


def _reports(file: Path) -> list[Report]:
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def _fates(store: Store, said: dict[str, Report], wanted: set[str], shared: str) -> Fates:
    committed = {row[0] for row in store.journal.query("SELECT op_id FROM ops")} & wanted
    refused = {event.data["op_id"] for event in store.events(type="knowledge.refused")}
    told = {key for key, report in said.items() if report[2]}
    denied = {key for key, report in said.items() if not report[2] and report[3]}
    lost = (wanted - told - denied) | (told - committed) | (denied - refused) | (committed & denied)
    kinds = Counter(said[key][1] for key in committed & told)
    record = store.get(shared)
    edits, helpful = (record.version - 1, record.usage.helpful) if record else (0, 0)
    added = len(store.view("default").records()) - 1
    effects = {Op.ADD: added, Op.EDIT: edits, Op.TAG: helpful}
    return Fates(
        deltas=len(wanted),
        committed=len(committed),
        refused=len(denied),
        lost=len(lost),
        without_effect=sum(abs(kinds[op] - count) for op, count in effects.items()),
        findings=[f"{item.code}: {item.message}" for item in store.doctor() if item.level != "info"],
    )
