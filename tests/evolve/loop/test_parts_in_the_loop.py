"""In a run: what is cut off from a text is in no prompt, is told where people look, and waits for a person if asked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.config.model import Config
from evolve.gates.decision_ledger import entries, replay
from evolve.gates.gate_events import verdicts
from evolve.gates.review_queue import proposals, says
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, run
from policies.protocols import Message, SamplingParams
from policies.scripted import ScriptedPolicy
from tests.evolve.command import evolve, evolve_json
from tests.evolve.toy_doors import ManyDoors, replies

SLEEPING = "On the ninth day leave every door open."


class SureDoors(ManyDoors):
    """Nothing there depends on chance."""

    seedless = True


def taught(messages: Sequence[Message], params: SamplingParams) -> str:
    """Play the three roles; each lesson comes with a half that no door ever wakes."""
    said = replies(messages, params)
    if messages[0].content.startswith("reflect"):
        lessons = json.loads(said)
        return json.dumps(lessons | {"insights": [f"{text}. {SLEEPING}" for text in lessons["insights"]]})
    return re.sub(r"[.]$", "", said)


@pytest.fixture(params=["default", "default+review"])
def workspace(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    names = request.param.split("+")
    (tmp_path / "evolve.toml").write_text('[memory]\nindex = "exact"\n')
    config = Config.model_validate(
        {
            "root": tmp_path,
            "memory": {"index": "exact"},
            "policy": {"temperature": 0},
            "run": {"batch_size": 5, "tasks": 10},
            "controls": {"no_memory": 0},
            "gate": {"names": names, "calls_ratio": 100},
        }
    )
    run(config, parts=Parts(policy=ScriptedPolicy(taught, name="doors", profile="compact"), environment=SureDoors(10)))
    return tmp_path


def test_a_sleeping_half_is_cut_off_told_and_kept_for_a_person(workspace: Path) -> None:
    config = Config.model_validate({"root": workspace, "memory": {"index": "exact"}})
    with open_store(config, read_only=True) as store:
        known = [record.payload.text() for record in store.view("default").records()]
        queue = proposals(store)
        (run_id,) = (row["run_id"] for row in store.runs())
        held = [entry for entry in entries(store, run_id) if entry.gate == "held_out" and entry.answer == "accepted"]
        assert replay(store, run_id).differences == ()
        assert any(verdict.cut for verdict in verdicts(store, "default"))
    waiting = [says(each.op) for each in queue]
    assert held
    assert all(entry.left_out == (SLEEPING,) for entry in held)
    if queue:  # a person is asked: about the rules as they were measured, and about what was cut off
        assert waiting.count(SLEEPING) == 1
        assert all("wants the word" in text for text in waiting if text != SLEEPING)
        assert known == []
    else:
        assert len(known) == len(held)
        assert all("wants the word" in text for text in known)
    assert not any("ninth" in text for text in known)
    assert not any("ninth" in text and "wants" in text for text in waiting)
    log = evolve_json(workspace, "gates", "log", "--gate", "held_out")
    assert SLEEPING in log["verdicts"][0]["left_out"]
    shown = evolve(workspace, "gates", "show", str(held[0].seq))
    assert f"left out of {held[0].op_id}: {SLEEPING}" in shown
    assert "0 tasks worse, 0 better" in shown
