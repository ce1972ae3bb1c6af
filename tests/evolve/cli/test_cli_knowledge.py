"""The playbook, the memory and the logs through the command: a change by hand is kept, named and can be undone."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op
from tests.evolve.command import TASKS, complaint, evolve, evolve_json

MINE = "Always greet the accountant."


def contents(folder: Path) -> list[str]:
    return [row["content"] for row in evolve_json(folder, "playbook", "list")]


def latest(folder: Path) -> str:
    return evolve_json(folder, "playbook", "log")[-1]["snapshot"]


def test_a_rule_of_ones_own_is_pinned_and_trusted(learned: Path) -> None:
    before = contents(learned)
    assert len(before) >= 3
    assert "1 applied" in evolve(learned, "playbook", "add", MINE)
    row = evolve_json(learned, "playbook", "list")[-1]
    assert (row["content"], row["trust"], row["status"]) == (MINE, "operator", "active (pinned)")
    assert contents(learned) == [*before, MINE]
    assert evolve_json(learned, "playbook", "list", "--quarantined") == []


def test_an_edit_makes_a_version_that_blame_shows(learned: Path) -> None:
    old = contents(learned)[0]
    evolve(learned, "playbook", "edit", "1", MINE)
    assert contents(learned)[0] == MINE
    shown = evolve_json(learned, "playbook", "show", "1")
    assert shown["version"] == 2
    wrote, changed = evolve_json(learned, "playbook", "blame", "1")
    assert (wrote["event"], wrote["by"]) == ("add", "loop/rules")
    assert wrote["tasks"].startswith("office-3/")
    assert (changed["event"], changed["by"].split("/")[0]) == ("edit", "operator")
    assert len(evolve_json(learned, "playbook", "blame", "1", "--all")) > 2
    change = evolve_json(learned, "playbook", "diff", latest(learned))["changed"]
    assert [old in change[0]["before"], MINE in change[0]["after"]] == [True, True]


def test_a_label_names_its_record_in_every_version(learned: Path) -> None:
    with open_store(load_config(learned / "evolve.toml"), owner=False) as store:
        record = store.records("default")[0]
        payload = {"content": MINE, "section": "OTHERS"}
        edit = DeltaOp(op=Op.EDIT, kind="bullet", target_id=record.id, payload=payload)
        assert store.commit("default", [edit], actor="t").applied
        (edited, *_) = store.records("default")
    assert record.label != edited.label
    for name in (record.label, edited.label, edited.label.upper(), f"{edited.slug}-1", "1", record.id):
        assert evolve_json(learned, "playbook", "show", name)["payload"]["content"] == MINE
    assert "no record 'api-1'" in complaint(learned, "playbook", "show", "api-1", code=1)


def test_a_bullet_goes_and_comes_back(learned: Path) -> None:
    before = contents(learned)
    label = evolve_json(learned, "playbook", "list")[0]["label"]
    evolve(learned, "playbook", "retire", label)
    assert contents(learned) == before[1:]
    statuses = {row["label"]: row["status"] for row in evolve_json(learned, "playbook", "list", "--all")}
    assert statuses[label] == "retired"
    evolve(learned, "playbook", "restore", label)
    assert contents(learned) == before


def test_going_back_restores_the_text_and_can_itself_be_undone(learned: Path) -> None:
    before, snapshot = contents(learned), latest(learned)
    evolve(learned, "playbook", "add", MINE)
    evolve(learned, "playbook", "edit", "1", "Changed by hand.")
    changed = contents(learned)
    evolve(learned, "playbook", "rollback", snapshot)
    assert contents(learned) == before
    assert evolve(learned, "playbook", "diff", snapshot).strip() == "no difference"
    undo = evolve_json(learned, "playbook", "log")[-1]["snapshot"]
    evolve(learned, "playbook", "rollback", undo)
    assert contents(learned) == changed


def test_a_run_can_be_undone_as_a_whole(learned: Path) -> None:
    start, end = (row["snapshot"] for row in evolve_json(learned, "playbook", "log"))
    gained = evolve_json(learned, "playbook", "diff", start, end)
    assert len(gained["added"]) == len(contents(learned))
    evolve(learned, "playbook", "rollback", start)
    assert contents(learned) == []


def test_a_foreign_playbook_is_quarantined_until_it_is_restored(learned: Path, tmp_path: Path) -> None:
    before = contents(learned)
    for form in ("ace", "kayba", "markdown", "json"):
        file = tmp_path / f"playbook.{form}"
        evolve(learned, "playbook", "export", str(file), "--format", form)
        assert before[0] in evolve(learned, "playbook", "export", "--format", form)
        assert evolve_json(learned, "playbook", "export", "--format", form)["bullets"] == len(before)
    file = tmp_path / "foreign.txt"
    file.write_text(f"## STRATEGIES AND HARD RULES\n[shr-00001] helpful=3 harmful=0 :: {MINE}\n")
    evolve(learned, "playbook", "import", str(file))
    assert contents(learned) == before
    quarantined = evolve_json(learned, "playbook", "list", "--all")[-1]
    assert (quarantined["content"], quarantined["trust"]) == (MINE, "imported")
    assert evolve_json(learned, "playbook", "list", "--quarantined") == [quarantined]
    evolve(learned, "playbook", "restore", quarantined["label"])
    assert contents(learned) == [*before, MINE]


def test_a_file_that_is_no_text_is_refused(learned: Path, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    assert "UTF-8" in complaint(learned, "playbook", "import", str(tmp_path / "binary"), code=2)


def test_a_duplicate_is_refused_with_exit_code_1(learned: Path) -> None:
    evolve(learned, "playbook", "retire", "1")
    assert "refused" in evolve(learned, "playbook", "edit", "1", "x", code=1)


def test_memory_is_searched_counted_and_forgotten(learned: Path) -> None:
    first = contents(learned)[0]
    found = evolve_json(learned, "memory", "search", first, "-k", "2")
    assert found[0]["content"] == first
    assert len(found) == 2
    stats = evolve_json(learned, "memory", "stats")
    assert (stats["runs"], stats["records"]["bullet provisional"]) == (1, len(contents(learned)))
    gone = evolve_json(learned, "memory", "forget", "1", "--purge", "--yes")
    assert len(gone["records"]) == 1
    assert first not in contents(learned)
    assert first.encode() not in (learned / ".evolve" / "evolve.db").read_bytes()
    assert evolve_json(learned, "memory", "doctor") == []
    assert "one" in complaint(learned, "memory", "forget", code=2)


def test_the_doctor_finds_and_mends_a_changed_projection(learned: Path) -> None:
    import sqlite3

    with sqlite3.connect(learned / ".evolve" / "evolve.db") as db:
        db.execute("UPDATE records SET status = 'retired' WHERE number = 1")
    db.close()
    wrong = evolve_json(learned, "memory", "doctor", code=1)
    assert [finding["code"] for finding in wrong] == ["projection"]
    assert "--rebuild" in wrong[0]["fix"]
    evolve(learned, "memory", "doctor", "--rebuild")
    assert evolve(learned, "memory", "doctor").strip() == "healthy"


def test_everything_is_embedded_anew(learned: Path) -> None:
    count = evolve_json(learned, "memory", "stats")["records"]["bullet provisional"]
    assert evolve_json(learned, "memory", "reindex")["versions"] == count


def test_runs_and_episodes_are_listed_and_shown(learned: Path) -> None:
    (run,) = evolve_json(learned, "logs", "list")
    assert (run["mode"], run["status"], run["tasks"]) == ("online", "done", TASKS)
    episodes: list[dict[str, Any]] = evolve_json(learned, "logs", "list", "--run", run["run"], "-n", "1000")
    main = [episode for episode in episodes if episode["arm"] == "main"]
    assert len(main) == TASKS
    assert len(episodes) > TASKS
    failed = evolve_json(learned, "logs", "list", "--run", run["run"], "--failed", "-n", "1000")
    assert len(failed) == sum(not episode["success"] for episode in episodes) > 0
    shown = evolve(learned, "logs", "show", failed[0]["episode"])
    assert "--- step 0" in shown
    assert "success: False" in shown
    assert evolve_json(learned, "logs", "show", failed[0]["episode"])["task"]["id"] == failed[0]["task"]


def test_the_utility_of_a_bullet_is_shown_with_its_bounds(learned: Path) -> None:
    rows = evolve_json(learned, "playbook", "list")
    one = next(row["utility"] for row in rows if row["helpful"])
    assert 0 < one["lower"] < one["mean"] < one["upper"] < 1
    assert 0 < one["helpful"] < max(row["helpful"] for row in rows), "marks fade with the tasks done since"
    assert one["measured"] is None
    assert evolve_json(learned, "playbook", "show", rows[0]["label"])["utility"] == rows[0]["utility"]


def test_contradictions_are_listed_with_the_rule_that_holds(learned: Path) -> None:
    assert evolve_json(learned, "playbook", "contradictions") == []
    for value in ("cents", "dollars"):
        evolve(learned, "playbook", "add", f"refunds.send: amount must be {value}", "--no-pin")
    (row,) = evolve_json(learned, "playbook", "contradictions")
    assert (row["difference"], row["sure"]) == ("cents | dollars", "certain")
    assert row["rules"].endswith(row["holds"])


def test_a_forgotten_rule_is_not_added_again_unless_asked(learned: Path) -> None:
    evolve(learned, "playbook", "add", MINE)
    label = evolve_json(learned, "playbook", "list")[-1]["label"]
    gone = evolve_json(learned, "memory", "forget", label, "--purge", "--yes", "--reason", "not ours to keep")
    assert (len(gone["records"]), gone["copies"]) == (1, [])
    refused = evolve_json(learned, "playbook", "add", MINE, code=1)["results"][0]["reason"]
    assert "not ours to keep" in refused
    archive = learned / "whole.tar.gz"
    evolve(learned, "export", "--workspace", str(archive))
    with tarfile.open(archive) as bundle:
        parts = [bundle.extractfile(member) for member in bundle if member.isreg()]
        assert not any(MINE.encode() in part.read() for part in parts if part)
    evolve(learned, "playbook", "add", MINE, "--allow-forgotten")
    assert MINE in contents(learned)
