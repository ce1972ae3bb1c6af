"""`evolve backup` while writers go on, its restoring, and what to do about a lost or damaged database."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from evolve.config.file import load_config
from evolve.generations.llama_cpp import CONVERTED
from evolve.loop.assembly import open_store
from evolve.training.evaluation import BEST
from evolve.training.ledger import CHECKPOINT, GOOD, METRICS
from evolve.training.ledger import FOLDER as TRAININGS
from evolve.training.rollout_policy import FOLDER as SERVED
from memory.records import DeltaOp, Op
from tests.evolve.command import complaint, evolve, evolve_json, invoke

PAGE = 4096


def restored(folder: Path, backup: Path) -> Path:
    """Do what the backup says: move the workspace away and copy the dated folder to its place."""
    shutil.move(folder / ".evolve", folder / "away")
    shutil.copytree(backup, folder / ".evolve")
    return folder


def test_a_backup_is_dated_checked_and_can_be_restored(learned: Path) -> None:
    (learned / ".evolve" / "policies" / "adapters").mkdir(parents=True)
    (learned / ".evolve" / "policies" / "adapters" / "a.json").write_text("{}")
    before = evolve(learned, "report"), evolve_json(learned, "playbook", "list")
    made = evolve_json(learned, "backup")
    folder = Path(made["path"])
    assert folder.parent == learned / "backups"
    assert folder.name.startswith("evolve-20")
    told = (folder / "RESTORE.txt").read_text()
    assert "cp -r" in told
    assert "`database`" not in told
    evolve(learned, "playbook", "add", "learned after the backup")
    restored(learned, folder)
    assert evolve(learned, "memory", "doctor").strip() == "healthy"
    assert (evolve(learned, "report"), evolve_json(learned, "playbook", "list")) == before
    assert (learned / ".evolve" / "policies" / "adapters" / "a.json").read_text() == "{}"
    assert list((learned / ".evolve" / "runs").iterdir())


def test_a_backup_holds_adapters_and_no_checkpoint(learned: Path) -> None:
    """Of a generation's adapter every file, whatever it is called; of a training what it needs no server for."""
    policies = learned / ".evolve" / "policies"
    training = f"{TRAININGS}/sage-1"
    kept = {
        *("adapters/policy-v1/adapter_model.safetensors", "adapters/policy-v1/gguf/whole.pt", "cycle.json"),
        *(f"{training}/{name}" for name in ("training.json", METRICS, "rollouts/0.jsonl", "adapter/a.safetensors")),
    }
    left_out = {
        *(f"{CONVERTED}/policy-v1.0.gguf", f"{CONVERTED}/.a.gguf.new", ".cycle.json.new"),
        *(f"{training}/{name}" for name in (CHECKPOINT, GOOD, BEST, f"{CHECKPOINT}.new", ".adapter.new/a.safetensors")),
        *(
            f"{training}/{name}"
            for name in (f"{SERVED}/sage-1-u3/a.safetensors", "llama.cpp/a.gguf", "replies-3.jsonl")
        ),
    }
    for name in kept | left_out:
        (policies / name).parent.mkdir(parents=True, exist_ok=True)
        (policies / name).write_text("{}")
    folder = Path(evolve_json(learned, "backup")["path"])
    copied = {path.relative_to(folder / "policies").as_posix() for path in (folder / "policies").rglob("*")}
    assert {name for name in copied if (folder / "policies" / name).is_file()} == kept
    assert "checkpoints are not here" in (folder / "RESTORE.txt").read_text()


def test_a_backup_of_a_workspace_in_use_is_whole(learned: Path) -> None:
    config, stop = load_config(learned / "evolve.toml"), Event()

    def write() -> int:
        count = 0
        with open_store(config, owner=False) as store:
            while not stop.is_set():
                op = DeltaOp(op=Op.ADD, payload={"content": f"{count} is written while the backup runs"})
                store.commit("default", [op], actor="t")
                count += 1
        return count

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            made = [evolve_json(learned, "backup", str(learned / "kept")) for _ in range(3)]
        finally:
            stop.set()
        assert writer.result() > 0
    assert made[0]["records"] <= made[1]["records"] <= made[2]["records"]
    restored(learned, Path(made[2]["path"]))
    assert evolve(learned, "memory", "doctor").strip() == "healthy"
    assert sum(evolve_json(learned, "memory", "stats")["records"].values()) == made[2]["records"]


def test_a_backup_inside_the_workspace_or_of_nothing_is_refused(learned: Path, tmp_path: Path) -> None:
    assert "inside the workspace" in complaint(learned, "backup", str(learned / ".evolve" / "kept"), code=2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "evolve.toml").touch()
    assert "no workspace" in complaint(tmp_path / "empty", "backup", code=1)


def test_a_purge_names_the_backups_that_still_hold_the_text(learned: Path) -> None:
    made = evolve_json(learned, "backup")
    gone = evolve_json(learned, "memory", "forget", "1", "--purge", "--yes")
    assert gone["copies"] == [f"{made['path']}/evolve.db"]


@pytest.mark.parametrize("empty", [True, False])
def test_a_lost_database_is_recognised(learned: Path, empty: bool) -> None:
    file = learned / ".evolve" / "evolve.db"
    file.unlink()
    if empty:
        file.touch()
    for line in ("run --limit 2", "playbook list", "memory doctor"):
        assert "evolve backup" in complaint(learned, *line.split(), code=1)
    assert not empty or file.stat().st_size == 0


def test_a_damaged_database_is_not_backed_up_and_can_be_salvaged(learned: Path) -> None:
    file = learned / ".evolve" / "evolve.db"
    evolve(learned, "backup")
    body = bytearray(file.read_bytes())
    for page in range(40, len(body) // PAGE, 20):
        body[page * PAGE : (page + 1) * PAGE] = b"Z" * PAGE
    file.write_bytes(body)
    assert "salvage" in complaint(learned, "backup", code=1)
    assert len(list((learned / "backups").iterdir())) == 1
    findings = evolve_json(learned, "memory", "doctor", code=1)
    assert {finding["code"] for finding in findings} == {"damaged"}
    told = invoke(learned, "memory", "salvage")
    assert told.exit_code == 0
    assert "lost" in told.stdout
    assert "put it in place" in told.stdout
    assert file.read_bytes() == bytes(body)
    file.unlink()
    (saved,) = (learned / ".evolve").glob("salvaged-*.db")
    saved.rename(file)
    assert evolve(learned, "memory", "doctor").strip() == "healthy"
    assert evolve_json(learned, "playbook", "list")


def test_the_doctor_names_the_library(learned: Path) -> None:
    from memory.doctor import library

    said = invoke(learned, "memory", "doctor").stderr
    assert ("WAL-reset" in said) is (library() is not None)
