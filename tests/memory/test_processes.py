"""Many writers, and writers that are killed: every delta is committed or reported, none is silently lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.records import DeltaOp, Op, UsageCounts
from memory.store import Store

Add = Callable[..., DeltaOp]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def shared(path: Path, add: Add) -> str:
    """A workspace with one record that everybody writes to."""
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        return store.commit("default", [add("shared")], actor="seed").results[0].record_id or ""


def start(path: Path, shared: str, name: str, turns: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).with_name("writer.py")), str(path), shared, name, str(turns)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def said(output: str) -> list[tuple[str, str, bool, str]]:
    return [tuple(json.loads(line)) for line in output.splitlines() if line.endswith("]")]


@pytest.mark.slow
def test_eight_processes_lose_nothing(path: Path, shared: str) -> None:
    turns = 200
    writers = [start(path, shared, f"writer-{n}", turns) for n in range(8)]
    outputs = [writer.communicate(timeout=1200)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8
    reports = [report for output in outputs for report in said(output)]
    assert len(reports) == 8 * turns
    applied = Counter(op for op, _, ok, _ in reports if ok)
    refused = [reason for _, _, ok, reason in reports if not ok]
    assert all(reason.startswith("stale") for reason in refused)
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        record = store.get(shared)
        assert record is not None
        assert record.usage.helpful == applied[Op.TAG] == 8 * 67
        assert record.version == 1 + applied[Op.EDIT]
        assert applied[Op.EDIT] + len(refused) == 8 * 66
        assert [r.number for r in store.view("default").records()] == list(range(1, 2 + applied[Op.ADD]))
        assert applied[Op.ADD] == 8 * 67
        assert len(store.events(type="knowledge.refused")) == len(refused)
        known = {row[0] for row in store.db.execute("SELECT op_id FROM ops")}
        assert {op_id for _, op_id, ok, _ in reports if ok} <= known
        assert store.doctor() == []


@pytest.mark.slow
def test_a_killed_writer_loses_no_commit_it_had_reported(path: Path, shared: str) -> None:
    rng = random.Random(7)
    acknowledged: set[str] = set()
    for life in range(6):
        writer = start(path, shared, f"life-{life}", 100_000)
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.3))
        writer.kill()
        reports = said(first + writer.communicate()[0])
        assert reports
        acknowledged |= {op_id for _, op_id, ok, _ in reports if ok}
        with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
            known = {row[0] for row in store.db.execute("SELECT op_id FROM ops")}
            assert acknowledged <= known
            assert store.doctor() == []


def test_threads_share_one_store(store: Store, add: Add) -> None:
    record_id = store.commit("default", [add("shared")], actor="seed").results[0].record_id or ""
    failures: list[Exception] = []

    def work(name: str) -> None:
        try:
            for turn in range(25):
                tag = DeltaOp(op=Op.TAG, target_id=record_id, usage=UsageCounts(cited=1))
                store.commit("default", [add(f"{name} {turn}"), tag], actor=name)
                assert store.get(record_id) is not None
                assert len(store.view("default").records()) > turn
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    record = store.get(record_id)
    assert record is not None
    assert record.usage.cited == 150
    assert [r.number for r in store.view("default").records()] == list(range(1, 152))
    assert store.doctor() == []


def test_a_resumed_writer_repeats_itself_without_effect(path: Path, add: Add) -> None:
    ops = [add("one"), add("two")]
    for _ in range(2):
        with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
            store.commit("default", ops, actor="run", run_id="r")
            assert [r.payload.content for r in store.view("default").records()] == ["one", "two"]
