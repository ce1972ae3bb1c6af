"""`evolve merge`: what another workspace learned comes in, quarantined, and is measured again.

M1  what is in use there is quarantined here with its origin; what both know is joined; the same again changes nothing
M2  what contradicts something in use here waits for a person, who says what holds
M3  how a record did elsewhere is kept by policy, without weight, and the latest word counts
M4  a place that is no workspace, and one that is this one, are refused in a sentence
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import evolve
from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op, Provenance, Status, Trust, UsageCounts
from tests.evolve.command import complaint, evolve_json
from tests.evolve.command import evolve as command
from tests.postgres import workspace_address


def workspace(folder: Path, *rules: str, database: str = "") -> Path:
    """Make a workspace that knows some rules."""
    folder.mkdir()
    (folder / "evolve.toml").write_text(f'[memory]\nindex = "exact"\ndatabase = "{database}"\n')
    with open_store(load_config(folder / "evolve.toml")) as store:
        ops = [
            DeltaOp(
                op=Op.ADD,
                payload={"content": rule},
                status=Status.ACTIVE,
                provenance=Provenance(trust=Trust.VERIFIED, author="rules", task_ids=(f"task-{at}",)),
            )
            for at, rule in enumerate(rules)
        ]
        assert not store.commit("default", ops, actor="loop").refused
    return folder


CENTS, DOLLARS = "payments.send: amount must be in cents", "payments.send: amount must be in dollars"


def test_what_another_learned_is_quarantined_with_its_origin(learned: Path, tmp_path: Path) -> None:
    here = workspace(tmp_path / "here", "mail.send: to must be the contact's email", "Be brief.")
    done = evolve_json(here, "merge", str(learned))
    rows = evolve_json(learned, "playbook", "list")
    assert len(done["added"]) == len(rows) - 1
    assert done["joined"] == ["shr-00001"]
    assert (done["conflicts"], done["refused"], done["repeated"]) == ([], [], 0)
    with open_store(load_config(here / "evolve.toml"), read_only=True) as store:
        came = [record for record in store.records("default") if record.label in done["added"]]
        assert {(record.status, record.provenance.trust) for record in came} == {(Status.CANDIDATE, Trust.IMPORTED)}
        assert all(record.provenance.source.startswith("merge:learned#shr-") for record in came)
        assert all(record.provenance.task_ids and record.provenance.run_id for record in came)
        assert store.doctor() == []
    assert "nothing of it is in a prompt yet" in command(workspace(tmp_path / "new"), "merge", str(learned))
    again = evolve_json(here, "merge", str(learned / ".evolve"))
    assert (again["added"], again["repeated"]) == ([], len(rows) - 1)
    assert again["joined"] == ["shr-00001"]


def test_what_contradicts_waits_for_a_person(tmp_path: Path) -> None:
    here, there = workspace(tmp_path / "here", CENTS), workspace(tmp_path / "there", DOLLARS, "Be brief.")
    with evolve.open(here) as memory:
        done = memory.merge(there)
        assert done.conflicts == (f"{DOLLARS} (contradicts [shr-00001] here: cents | dollars)",)
        assert len(done.added) == 1
        assert memory.merge(there).repeated == 2
        (waits,) = memory.proposals()
        assert waits.content == DOLLARS
        memory.accept(waits.number)
        assert DOLLARS in [row.content for row in memory.knowledge()]


def test_how_it_did_elsewhere_is_kept_by_policy_and_has_no_weight(tmp_path: Path) -> None:
    here, there = workspace(tmp_path / "here"), workspace(tmp_path / "there", CENTS)
    used(there, "run-a", policy="qwen", policy_version="base", helpful=3)
    used(there, "run-b", policy="qwen", policy_version="v2", harmful=2)
    assert evolve_json(here, "merge", str(there))["added"]
    shown = evolve_json(here, "playbook", "show", "1")
    assert shown["elsewhere"] == {"qwen base": {"helpful": 3}, "qwen v2": {"harmful": 2}}
    assert (shown["usage"]["helpful"], shown["utility"]["helpful"]) == (0, 0)
    used(there, "run-b", policy="qwen", policy_version="v2", harmful=1)
    evolve_json(here, "merge", str(there))
    assert evolve_json(here, "playbook", "show", "1")["elsewhere"]["qwen v2"] == {"harmful": 3}
    assert "elsewhere: {'qwen base'" in command(here, "playbook", "show", "1")


def test_what_an_abandoned_text_did_is_not_said_of_the_one_before_it(tmp_path: Path) -> None:
    here, there = workspace(tmp_path / "here"), workspace(tmp_path / "there", CENTS)
    used(there, "run-a", policy="qwen", policy_version="base", helpful=3)
    with open_store(load_config(there / "evolve.toml"), owner=False) as store:
        before = store.snapshot("default")
    command(there, "playbook", "edit", "1", DOLLARS)
    used(there, "run-b", policy="qwen", policy_version="base", harmful=9)
    command(there, "playbook", "rollback", before.id)
    used(there, "run-c", policy="qwen", policy_version="base", helpful=1)
    evolve_json(here, "merge", str(there))
    assert evolve_json(here, "playbook", "show", "1")["elsewhere"] == {"qwen base": {"helpful": 1}}


def test_two_namespaces_take_the_same_workspace(tmp_path: Path) -> None:
    here, there = workspace(tmp_path / "here"), workspace(tmp_path / "there", CENTS, "Be brief.")
    assert len(evolve_json(here, "merge", str(there))["added"]) == 2
    file = here / "evolve.toml"
    file.write_text(file.read_text() + 'namespace = "team_b"\n')
    assert len(evolve_json(here, "merge", str(there))["added"]) == 2


def test_variables_of_the_shell_are_about_this_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = workspace(tmp_path / "here"), workspace(tmp_path / "there", CENTS)
    monkeypatch.setenv("EVOLVE_MEMORY__NAMESPACE", "team_b")
    assert len(evolve_json(here, "merge", str(there))["added"]) == 1
    assert "no namespace 'rome'" in complaint(here, "merge", str(there), "--namespace", "rome", code=1)


def used(folder: Path, run_id: str, *, policy: str, policy_version: str, **counts: int) -> None:
    with open_store(load_config(folder / "evolve.toml"), owner=False) as store:
        record = store.records("default")[0]
        run: dict[str, Any] = {"policy": policy, "policy_version": policy_version, "status": "done"}
        store.put_run(run_id, run)
        op = DeltaOp(op=Op.TAG, target_id=record.id, usage=UsageCounts(**counts))
        assert store.commit("default", [op], actor="loop", run_id=run_id).applied


DOUBLE = 'def double(x: int) -> int:\n    """Return twice x."""\n    return {}\n'


def test_a_skill_of_the_same_name_and_other_code_waits_for_a_person(tmp_path: Path) -> None:
    here, there = workspace(tmp_path / "here", "Be kind."), workspace(tmp_path / "there", "Be brief.")
    for folder, body in ((here, "x + x"), (there, "2 * x")):
        with open_store(load_config(folder / "evolve.toml"), owner=False) as store:
            op = DeltaOp(op=Op.ADD, kind="skill", payload={"source": DOUBLE.format(body)}, status=Status.ACTIVE)
            assert store.commit("default", [op], actor="loop").applied
    done = evolve_json(here, "merge", str(there))
    (conflict,) = done["conflicts"]
    assert "has the name of [" in conflict
    assert done["joined"] == []


def test_skills_and_what_was_edited_since_come_too(tmp_path: Path) -> None:
    here, there = workspace(tmp_path / "here"), workspace(tmp_path / "there", "Be brief.")
    source = DOUBLE.format("2 * x")
    with open_store(load_config(there / "evolve.toml"), owner=False) as store:
        op = DeltaOp(op=Op.ADD, kind="skill", payload={"source": source}, status=Status.ACTIVE)
        assert store.commit("default", [op], actor="loop").applied
    assert len(evolve_json(here, "merge", str(there))["added"]) == 2
    command(there, "playbook", "edit", "1", "Be brief and kind.")
    assert len(evolve_json(here, "merge", str(there))["added"]) == 1
    kinds = {row["kind"] for row in evolve_json(here, "playbook", "list", "--quarantined")}
    assert kinds <= {"bullet", "skill"}


def test_what_is_no_other_workspace_is_refused(tmp_path: Path) -> None:
    here = workspace(tmp_path / "here", CENTS)
    assert "no workspace at" in complaint(here, "merge", str(tmp_path / "nowhere"), code=1)
    assert "merge into itself" in complaint(here, "merge", str(here), code=2)
    with open_store(load_config(here / "evolve.toml"), owner=False) as store:
        store.commit("team", [DeltaOp(op=Op.ADD, payload={"content": "Be kind."})], actor="x")
    assert len(evolve_json(here, "merge", str(here), "--namespace", "team")["added"]) == 1


@pytest.mark.parametrize("on_server", [False, True])
def test_a_workspace_with_nothing_in_use_brings_nothing(tmp_path: Path, on_server: bool) -> None:
    here = workspace(tmp_path / "here", CENTS, database=workspace_address() if on_server else "")
    there = workspace(tmp_path / "there", DOLLARS)
    command(there, "playbook", "retire", "1")
    done = evolve_json(here, "merge", str(there))
    assert [done[what] for what in ("added", "joined", "conflicts", "refused", "repeated")] == [[], [], [], [], 0]


def test_a_workspace_that_was_copied_brings_nothing_new(learned: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(learned, tmp_path / "copy"))
    done = evolve_json(copy, "merge", str(learned))
    assert done["added"] == []
    assert len(done["joined"]) == len(evolve_json(learned, "playbook", "list"))
