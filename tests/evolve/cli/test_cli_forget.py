"""`evolve memory forget` takes what was named and says so first; what was measured before stays as it was."""

from __future__ import annotations

import json
import os
import pty
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import memory.sqlite.database
from evolve.config.file import load_config
from evolve.gates.review_queue import proposals, submit
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op
from memory.sqlite.sql import sqlite3
from tests.evolve.command import complaint, evolve, evolve_json, invoke, settings, start
from tests.evolve.inspector.conftest import opened

ERROR_TEXT = "contact's email"


@pytest.fixture
def task(learned: Path) -> str:
    """A task whose lesson quotes an error that other tasks met, too."""
    with open_store(load_config(learned / "evolve.toml"), read_only=True) as store:
        (record, *_) = (each for each in store.records("default") if ERROR_TEXT in each.payload.text())
    return record.provenance.task_ids[0]


def report(folder: Path) -> dict[str, Any]:
    """Return the latest report, without the warnings, and without what roles used, which goes with erased replies."""
    found = evolve_json(folder, "report")
    del found["warnings"], found["roles"]
    return found


def test_without_a_terminal_and_without_yes_nothing_is_forgotten(learned: Path, task: str) -> None:
    before = report(learned), evolve_json(learned, "playbook", "list")
    refused = invoke(learned, "memory", "forget", "--task", task, "--purge")
    assert refused.exit_code == 1
    assert "episodes: 1 main" in refused.stderr
    assert "record shr-" in refused.stderr
    assert "repeat it with --yes" in refused.stderr
    data = evolve_json(learned, "memory", "forget", "--task", task, "--purge", code=1)
    assert (data["done"], data["episodes"]["main"], data["error"]["type"]) == (False, 1, "NotConfirmed")
    assert (report(learned), evolve_json(learned, "playbook", "list")) == before


def test_what_was_shown_is_what_is_done(learned: Path, task: str) -> None:
    shown = evolve_json(learned, "memory", "forget", "--task", task, "--purge", code=1)
    done = evolve_json(learned, "memory", "forget", "--task", task, "--purge", "--yes")
    assert done["done"]
    assert {key: shown[key] for key in done if key != "done"} == {key: done[key] for key in done if key != "done"}


@pytest.mark.parametrize("purge", [["--purge"], []])
def test_the_figures_of_an_old_report_stay(learned: Path, task: str, purge: list[str]) -> None:
    before = report(learned)
    invoke(learned, "memory", "forget", "--task", task, *purge, "--yes")
    assert report(learned) == before
    assert "1 of these tasks were forgotten since" in evolve(learned, "report")
    assert evolve_json(learned, "memory", "doctor") == []
    assert "it was exact" in evolve(learned, "memory", "doctor", "--rebuild")


def test_an_episode_of_another_task_loses_the_quoted_text_alone(learned: Path, task: str) -> None:
    config = load_config(learned / "evolve.toml")
    with open_store(config, read_only=True) as store:
        before = {each.id: each for each in store.trajectories()}
        said = [r.payload.text() for r in store.records("default") if task in r.provenance.task_ids]
    gone = evolve_json(learned, "memory", "forget", "--task", task, "--purge", "--yes")
    with open_store(config, read_only=True) as store:
        after = {each.id: each for each in store.trajectories()}
    assert after.keys() == before.keys()
    changed = [key for key in before if before[key] != after[key] and not after[key].erased]
    assert len(changed) == gone["quoted"]["trajectory"] > 0
    for key in changed:
        whole = before[key].model_dump_json()
        for text in said:
            whole = whole.replace(text, "[erased]")
        assert json.loads(whole) == json.loads(after[key].model_dump_json())
    (left,) = (each for each in after.values() if each.erased)
    assert (left.task.id, left.success) == (task, before[left.id].success)
    assert len(left.steps) == len(before[left.id].steps)
    assert not any(step.action or step.observation or step.reply for step in left.steps)
    assert all(text.encode() not in (learned / ".evolve" / "evolve.db").read_bytes() for text in said)


def test_the_page_says_of_a_forgotten_episode_that_it_was_forgotten(learned: Path, task: str) -> None:
    with open_store(load_config(learned / "evolve.toml"), read_only=True) as store:
        (episode,) = store.trajectories(task_id=task, arm="main")
    evolve(learned, "memory", "forget", "--task", task, "--purge", "--yes")
    with opened(learned) as visitor:
        page = visitor.text(f"/episodes/{episode.id}")
    assert "This episode was forgotten: its figures still count" in page
    assert "(erased)" in page
    assert "nothing came back" not in page


def test_a_purge_after_a_forgetting_erases_the_text(learned: Path, task: str) -> None:
    config = load_config(learned / "evolve.toml")
    with open_store(config, read_only=True) as store:
        (instruction,) = {json.dumps(each.task.instruction)[1:-1] for each in store.trajectories(task_id=task)}
    evolve(learned, "memory", "forget", "--task", task, "--yes")
    assert instruction.encode() in (learned / ".evolve" / "evolve.db").read_bytes()
    evolve(learned, "memory", "forget", "--task", task, "--purge", "--yes")
    assert instruction.encode() not in (learned / ".evolve" / "evolve.db").read_bytes()


def test_a_record_is_purged_after_it_was_forgotten_and_once_more(learned: Path) -> None:
    (first, *_) = evolve_json(learned, "playbook", "list")
    evolve(learned, "memory", "forget", first["label"], "--yes")
    file = learned / ".evolve" / "evolve.db"
    assert first["content"].encode() in file.read_bytes()
    for name in (first["label"], "1"):
        assert evolve_json(learned, "memory", "forget", name, "--purge", "--yes")["done"]
        assert first["content"].encode() not in file.read_bytes()
    assert "no record '99'" in complaint(learned, "memory", "forget", "99", "--purge", "--yes", code=1)


def test_what_ends_like_a_label_names_no_record(learned: Path) -> None:
    before = evolve_json(learned, "playbook", "list", "--all")
    for name in ("office-train-1", "step-1", "-1"):
        said = complaint(learned, "memory", "forget", "--purge", "--yes", "--", name, code=1)
        assert f"no record {name!r}" in said
    assert evolve_json(learned, "playbook", "list", "--all") == before
    evolve(learned, "memory", "forget", before[0]["label"], "--yes")
    assert "no record 'office-train-1'" in complaint(
        learned, "memory", "forget", "office-train-1", "--purge", "--yes", code=1
    )


def test_a_purge_empties_what_stands_beside_the_journal_though_somebody_reads_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.sqlite.database, "BUSY_SECONDS", 0.1)
    folder = settings(tmp_path, tasks=1, more="[telemetry]\nenabled = true\ncapture_content = true\n")
    run = evolve_json(folder, "run")["run_id"]
    rollouts = folder / ".evolve" / "policies" / "training" / "grpo-1" / "rollouts" / "0.jsonl"
    line = folder / ".evolve" / "logs" / "a.jsonl"
    for file in (rollouts, line):
        file.parent.mkdir(parents=True)
        file.write_text("{}\n")

    def captured() -> list[Any]:
        return [span for span in evolve_json(folder, "traces", "show", run)["spans"] if span["content"]]

    assert captured()
    evolve(folder, "playbook", "add", "the spare key lies under the third stone")
    label = evolve_json(folder, "playbook", "list")[-1]["label"]
    with closing(sqlite3.connect(folder / ".evolve" / "evolve.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        assert "once more" in complaint(folder, "memory", "forget", label, "--purge", "--yes", code=1)
        assert (captured(), line.read_text(), rollouts.exists()) == ([], "", False)
    evolve(folder, "memory", "forget", label, "--purge", "--yes")
    assert b"third stone" not in (folder / ".evolve" / "evolve.db").read_bytes()


def test_a_forgotten_text_waits_for_no_review(learned: Path) -> None:
    said = "the spare key lies under the third stone"
    config = load_config(learned / "evolve.toml")
    with open_store(config, owner=False) as store:
        op = DeltaOp(op=Op.ADD, payload={"content": said})
        submit(store, "default", "r", [op, DeltaOp(op=Op.ADD, payload={"content": "something else"})])
    evolve(learned, "playbook", "add", said)
    label = evolve_json(learned, "playbook", "list")[-1]["label"]
    evolve(learned, "memory", "forget", label, "--purge", "--yes")
    with open_store(config, read_only=True) as store:
        assert [each.op.payload for each in proposals(store)] == [{"content": "something else"}]
        assert len(proposals(store, decided=True)) == 1


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_on_a_terminal_it_asks(learned: Path, task: str, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    process = start(learned, "memory", "forget", "--task", task, stdin=theirs)
    os.write(ours, f"{answer}\n".encode())
    out, err = process.communicate(timeout=1200)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code, err
    assert "this would be forgotten:" in out
    assert ("forgot:" in out) is (answer == "y")
