"""Redaction takes time in proportion to the text, whatever the text, and no writer waits for it.

L1  a megabyte of the worst texts is redacted within processor seconds, where a quadratic pattern takes hours
L2  cleaning and embedding are done before a transaction begins
L3  an item of the LangGraph store has a largest size
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from langgraph.store.base import PutOp

from evolve.integrations.langgraph_store import JournalStore
from memory.embedders.hashing import HashingEmbedder
from memory.errors import BadInput
from memory.records import DeltaOp, Event, Op, Reflection, Task, Trajectory
from memory.store import Store

HOSTILE = {
    "names-and-dashes": "password" + "a-" * 500_000,
    "names-and-equals": "password=" * 110_000,
    "jwt-heads": "eyJa-" * 200_000,
    "key-heads": "-----BEGIN " + "PRIVATE KEY" * 90_000,
    "key-tails": "-----BEGIN PRIVATE KEY-----" + "-----END " * 110_000,
    "npm-slashes": "//" * 500_000 + ":_authToken= x",
    "bearer-blanks": "bearer " + " " * 1_000_000,
    "url-colons": "://" + "a:" * 500_000,
    "sk": "sk-" * 330_000,
    "xox": "xoxb-" + "1-" * 500_000 + "xoxb-",
    "discord": "MNO" * 330_000 + ".abcdef." + "x" * 27,
    "hooks": "https://hooks.slack.com/services/T" * 30_000,
    "artifactory": "AKC" * 330_000 + "=",
    "telegram": "0123456789" * 100_000 + ":" + "x" * 35,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_the_worst_text_takes_seconds_not_hours(name: str) -> None:
    program = (
        "import resource, sys\n"
        "from memory.content import clean\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "text = sys.stdin.read()\n"
        "assert len(clean({'a': text})['a']) > 0\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], input=HOSTILE[name], text=True, capture_output=True)
    assert ran.returncode == 0, f"stopped after 20 processor seconds: {ran.returncode} {ran.stderr}"


@contextmanager
def _no_work_inside(store: Store) -> Generator[None]:
    """Fail when text is cleaned or embedded while the store holds its write transaction."""
    found: list[str] = []
    slow = {("redact.py", "redact"), ("redact.py", "suspects"), ("hashing.py", "embed")}

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and (Path(code.co_filename).name, code.co_name) in slow and store.db.in_transaction:
            found.append(code.co_name)

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert found == []


def test_no_writer_waits_for_cleaning(path: Path, add: Callable[..., DeltaOp]) -> None:
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store, _no_work_inside(store):
        store.commit("default", [add("Say please.", reason="polite")], actor="t", data={"note": "one"})
        store.commit("default", [DeltaOp(op=Op.REMOVE, target_id="nobody", reason="gone")], actor="t")
        store.append(Event(type="note", data={"text": "password = 'hunter2hunter2'"}))
        store.put_run("r", {"command": "run"})
        store.add_trajectory(Trajectory(id="tr", task=Task(id="t", instruction="Open the door.")))
        store.add_reflection(Reflection(trajectory_id="tr", task_id="t"))
        (record,) = store.records("default")
        store.forget(record.id, reason="not wanted")
        items = JournalStore(store)
        items.batch([PutOp(("users", "ann"), f"food-{n}", {"text": f"likes pizza {n}"}) for n in range(3)])
        items.put(("users", "ann"), "food-1", {"text": "likes curry"})
        items.delete(("users", "ann"), "food-2")


def test_an_item_has_a_largest_size(path: Path) -> None:
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        items = JournalStore(store)
        with pytest.raises(BadInput, match="expected at most 1,000,000"):
            items.put(("users", "ann"), "essay", {"text": "x" * 1_000_000})
        assert items.get(("users", "ann"), "essay") is None
