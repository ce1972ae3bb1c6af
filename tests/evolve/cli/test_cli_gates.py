"""`evolve gates log|show|replay`: what the journal says about every decision, and that it can be made again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evolve.config.model import Config
from evolve.gates.gate_events import VERDICT
from evolve.gates.held_out_rules import HeldOutTrial, Rules, decide
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, run
from evolve.statistics.alpha import Look, level
from memory.records import DeltaOp, Event, Op
from policies.scripted import ScriptedPolicy
from tests.evolve.command import complaint, evolve, evolve_json
from tests.evolve.toy_doors import Doors, replies

SETTINGS = """\
[memory]
index = "exact"
[run]
batch_size = 5
[controls]
no_memory = 0
[gate]
names = ["default"]
calls_ratio = 100
"""


@pytest.fixture
def doors(tmp_path: Path) -> Path:
    (tmp_path / "evolve.toml").write_text(SETTINGS)
    config = Config.model_validate(
        {
            "root": tmp_path,
            "memory": {"index": "exact"},
            "run": {"batch_size": 5},
            "controls": {"no_memory": 0},
            "gate": {"names": ["default"], "calls_ratio": 100},
        }
    )
    run(config, parts=Parts(policy=ScriptedPolicy(replies, name="doors", profile="compact"), environment=Doors(5)))
    return tmp_path


def test_the_log_tells_every_answer_with_its_reason(doors: Path) -> None:
    said = evolve_json(doors, "gates", "log")
    answers = {(entry["gate"], entry["answer"]) for entry in said["verdicts"]}
    assert answers == {("static", "accepted"), ("batch_screen", "accepted"), ("held_out", "accepted")}
    assert all("of 5 tasks" in entry["reason"] for entry in said["verdicts"] if entry["gate"] == "held_out")
    assert all("door wants the word" in entry["text"] for entry in said["verdicts"])
    ledger = said["ledger"]
    assert (ledger["looks"], ledger["looks_of_all_runs"], ledger["waiting"]) == (1, 1, 0)
    assert 0 < ledger["calls"] <= ledger["allowed"]
    assert 0 < ledger["next_level"] < 0.1
    text = evolve(doors, "gates", "log", "--gate", "held_out")
    assert "looked at 1 times in this run" in text
    assert "batch_screen" not in text
    assert evolve_json(doors, "gates", "log", "--rejected")["verdicts"] == []


def test_one_verdict_is_shown_with_its_pass_vectors(doors: Path) -> None:
    entry = next(e for e in evolve_json(doors, "gates", "log")["verdicts"] if e["gate"] == "held_out")
    text = evolve(doors, "gates", "show", str(entry["seq"]))
    assert f"accepted {entry['op_id']}: {entry['text']}" in text
    assert "base       -----" in text
    assert "candidate  +++++" in text
    assert evolve_json(doors, "gates", "show", str(entry["seq"]))["gate"] == "held_out"
    assert "no verdict 999999" in complaint(doors, "gates", "show", "999999", code=1)


def test_replay_ends_with_1_where_a_decision_comes_out_differently(doors: Path) -> None:
    found = evolve_json(doors, "gates", "replay")
    assert (found["verdicts"], found["differences"]) == (2, [])
    assert "0 differ" in evolve(doors, "gates", "replay")
    config = Config.model_validate({"root": doors, "memory": {"index": "exact"}})
    with open_store(config) as store:
        event = store.events(type=VERDICT)[-1]
        changed = json.loads(json.dumps(event.data))
        task = changed["evidence"]["rounds"][0]["trial"]["cohort"][0]
        changed["evidence"]["rounds"][0]["trial"]["candidate"][task] = False
        store.append(Event(type=VERDICT, namespace="default", run_id=event.run_id, subject="x", data=changed))
    text = evolve(doors, "gates", "replay", code=1)
    assert "of held_out" in text
    assert "1 differ" in text


def test_the_log_outlives_a_purge(doors: Path) -> None:
    evolve_json(doors, "memory", "forget", "1", "--purge", "--yes")
    said = evolve_json(doors, "gates", "log")["verdicts"]
    assert {entry["gate"] for entry in said} == {"static", "batch_screen", "held_out"}
    assert any(entry["text"] == "[erased]" for entry in said)
    evolve(doors, "gates", "replay")
    evolve(doors, "export", "html", str(doors / "page.html"))


def test_the_log_gives_the_next_level_though_more_was_allowed_before(doors: Path) -> None:
    ids = tuple(f"t{at}" for at in range(60))
    base: dict[str, bool | None] = dict.fromkeys(ids, False)
    trial = HeldOutTrial(cohort=ids, base=base, candidate={task: at < 5 for at, task in enumerate(ids)})
    decision = decide(trial, Rules(mode="strict", alpha=0.5))
    assert decision.accepted
    verdict = decision.verdict("held_out", [DeltaOp(op=Op.ADD, payload={"content": "x"})])
    with open_store(Config.model_validate({"root": doors, "memory": {"index": "exact"}})) as store:
        data = verdict.model_dump(mode="json")
        store.append(Event(type=VERDICT, namespace="default", run_id="earlier", subject="x", data=data))
    assert evolve_json(doors, "gates", "log")["ledger"]["next_level"] == level([Look(p=1.0, accepted=False)])
