"""Workspaces of commit 69e46c8 open, report and go on; `tests/golden/make_old_workspaces.py` says what they hold.

O1  their settings are taken: each old key with a warning that says the new one, and rewritten they are as before
O2  they say what that commit's own commands said of them, and the doctor finds nothing wrong
O3  they go on: more tasks, the run that was killed, a frozen evaluation; a comparison is printed again
O4  control: of a damaged event the doctor tells
"""

from __future__ import annotations

import json
import logging
import sqlite3
import tarfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import evolve
from evolve.config import renamed
from evolve.config.file import load_config
from tests.evolve.command import evolve as command
from tests.evolve.command import evolve_json

GOLDEN = Path(__file__).parents[2] / "golden"
OFFICE, POCKET = "office", "pocket"
NOW_SAY = {
    OFFICE: (
        "memory.mmr_lambda is of an earlier version; leave it out",
        "notebook.batch is of an earlier version; now say playbook.notebook.batch = 8",
        "gate.select_tasks is of an earlier version; now say gate.held_out.tasks = 12",
        "gate.first_stage is of an earlier version; now say gate.held_out.first_stage = 12",
        "gate.max_chars is of an earlier version; now say gate.static.max_chars = 1500",
        "forget.unused is of an earlier version; now say forget.unused.tasks = 400",
    ),
    POCKET: (
        "skills.evidence is of an earlier version; now say skills.useless.evidence = 5",
        "gate.hide is of an earlier version; now say gate.online_ab.hide = 0.1",
    ),
}
TASKS = {OFFICE: 2, POCKET: 6}
"""Of the run that goes on: two more, or all of the one that was killed."""


@pytest.fixture(params=(OFFICE, POCKET))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Unpack a workspace in a folder of its name."""
    return unpacked(request.param, tmp_path)


def unpacked(name: str, place: Path) -> Path:
    with tarfile.open(GOLDEN / f"{name}_69e46c8.tar.xz") as archive:
        archive.extractall(place / name, filter="data")
    return place / name


def said(folder: Path) -> dict[str, Any]:
    """Return what the old commands printed."""
    return json.loads((folder / "said.json").read_text(encoding="utf-8"))


def still(before: Any, now: Any) -> Any:
    """Return the part of an answer that has the keys of an earlier one."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {key: still(value, now[key]) for key, value in before.items() if key in now}
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [still(*pair) for pair in zip(before, now, strict=True)]
    return now


def wrong(findings: Sequence[evolve.Finding]) -> list[str]:
    return [finding.code for finding in findings if finding.level != "info"]


def test_its_settings_are_taken(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger=renamed.__name__):
        taken = load_config(old / "evolve.toml")
        told = list(caplog.messages)
        caplog.clear()
        command(old, "config", "migrate")
        caplog.clear()
        rewritten = load_config(old / "evolve.toml")
    assert len(told) == len(NOW_SAY[old.name])
    assert [each for each in NOW_SAY[old.name] if not any(f"key {each}" in line for line in told)] == []
    assert caplog.messages == []
    assert rewritten == taken


def test_it_says_what_it_said(old: Path) -> None:
    before = said(old)
    report = before["report"]
    if old.name == POCKET:  # its process was gone, which nobody said
        report |= {"status": "stale", "warnings": evolve_json(old, "report")["warnings"]}
        assert len(report["warnings"]) == 1
    with evolve.open(old) as memory:
        known = memory.knowledge().rows()
        assert wrong(memory.doctor()) == []
    assert still(before["playbook"], known) == before["playbook"]
    now = evolve_json(old, "report", report["run_id"])
    assert still(report, now) == report


def test_it_goes_on(old: Path) -> None:
    with evolve.open(old) as memory:
        before = {row.label for row in memory.knowledge()}
        came = memory.resume() if old.name == POCKET else memory.run(limit=2, settings={"run.skip": 16})
        assert came.status == "done"
        whole = memory.report(came.run_id).whole
        assert whole is not None
        assert whole.tasks == TASKS[old.name]
        assert {row.label for row in memory.knowledge()} >= before
        exam = memory.evaluate(limit=2)
        assert (exam.evaluations[0].arm, exam.evaluations[0].metrics.tasks) == ("main", 2)
        assert wrong(memory.doctor()) == []


def test_a_damaged_event_is_told(old: Path) -> None:
    with closing(sqlite3.connect(old / ".evolve" / "evolve.db")) as journal, journal:
        journal.execute("DROP TRIGGER events_no_update")
        journal.execute("UPDATE events SET meta = '{}' WHERE type = 'knowledge.add'")
    with evolve.open(old) as memory:
        assert wrong(memory.doctor()) == ["journal"]


def test_its_comparison_is_printed_again(tmp_path: Path) -> None:
    old = unpacked(OFFICE, tmp_path)
    before = said(old)["compared"]
    (folder,) = (old / ".evolve" / "compare").iterdir()
    now = evolve_json(old, "compare", "--reprint", str(folder))
    elsewhere = {"folder": str(folder), "digest": now["digest"]}  # what settings are called is part of the digest
    assert still(before, now) == before | elsewhere
