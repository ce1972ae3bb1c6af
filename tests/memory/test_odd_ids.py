"""Half of a surrogate pair is no Unicode text: in texts it is replaced, in an id it is refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.embedders.hashing import HashingEmbedder
from memory.errors import BadInput
from memory.records import DeltaOp, Event, Op, Reflection, Task, Trajectory
from memory.store import Store

BOTH_ENGINES = True

ODD = "task-\ud800"
CALLS: dict[str, Callable[[Store], Any]] = {
    "history": lambda store: store.history(ODD),
    "view": lambda store: store.view(ODD).records(),
    "events": lambda store: store.events(subject=ODD),
    "event": lambda store: store.append(Event(type="note", subject=ODD)),
    "episode": lambda store: store.add_trajectory(Trajectory(id=ODD, task=Task(id="t", instruction="a"))),
    "task": lambda store: store.add_trajectory(Trajectory(id="tr", task=Task(id=ODD, instruction="a"))),
    "reading": lambda store: store.trajectory(ODD),
    "reflection": lambda store: store.add_reflection(Reflection(trajectory_id=ODD, task_id="t")),
    "reply": lambda store: store.put_reply(ODD, {"text": "a"}),
    "run": lambda store: store.put_run(ODD, {"a": 1}),
    "forget": lambda store: store.forget(task_id=ODD),
    "commit": lambda store: store.commit("default", [DeltaOp(op=Op.REMOVE, target_id="a")], actor=ODD),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_odd_id_is_one_sentence(name: str, path: Path) -> None:
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        with pytest.raises(BadInput, match="whole Unicode characters"):
            CALLS[name](store)
        assert store.put_reply("good", {"text": "said \ud800"})["text"] == "said ?"


def test_an_op_with_one_is_refused_alone(path: Path, add: Callable[..., DeltaOp]) -> None:
    with Store.open(path, embedder=HashingEmbedder(), index="exact") as store:
        commit = store.commit("default", [DeltaOp(op=Op.REMOVE, target_id=ODD), add("Say please.")], actor="t")
        assert [result.applied for result in commit.results] == [False, True]
