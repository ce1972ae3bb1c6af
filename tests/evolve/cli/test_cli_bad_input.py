"""What goes wrong under the command: full disks, foreign and damaged files, locks. One sentence, and nothing lost."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from memory.journal import Journal
from memory.locks import Owner
from tests.evolve.command import TASKS, complaint, evolve, evolve_json, invoke, one_sentence, settings


def events(folder: Path) -> list[tuple[object, ...]]:
    with closing(Journal(folder / ".evolve" / "evolve.db", read_only=True)) as journal:
        return journal.query("SELECT seq, type, subject, meta, content FROM events ORDER BY seq")


@pytest.fixture
def indexed(learned: Path) -> Path:
    """Return a workspace whose vectors are in Chroma."""
    settings(learned, index="chroma")
    assert evolve(learned, "memory", "doctor").strip() == "healthy"
    evolve(learned, "memory", "reindex")
    assert (learned / ".evolve" / "index" / "chroma.sqlite3").exists()
    assert evolve(learned, "memory", "doctor").strip() == "healthy"
    return learned


def test_a_damaged_index_is_told_and_made_again(indexed: Path) -> None:
    before = events(indexed)
    for file in (indexed / ".evolve" / "index").rglob("*"):
        if file.is_file():
            file.write_bytes(os.urandom(file.stat().st_size))
    (finding,) = evolve_json(indexed, "memory", "doctor", code=1)
    assert finding["code"] == "index-healed"
    assert "nothing is lost" in finding["message"]
    assert evolve(indexed, "memory", "doctor").strip() == "healthy"
    assert events(indexed) == before


def test_an_owned_index_names_its_owner_and_lets_others_read_and_write(indexed: Path) -> None:
    owner = Owner(indexed / ".evolve" / "index")
    owner.acquire()
    try:
        assert f"belongs to process {os.getpid()}" in complaint(indexed, "run", code=1)
        assert "belongs to process" in complaint(indexed, "memory", "reindex", code=1)
        evolve(indexed, "playbook", "add", "Always greet the accountant.")
        assert evolve_json(indexed, "memory", "search", "greet the accountant")[0]["content"].startswith("Always")
        told = invoke(indexed, "memory", "doctor")
        assert (told.exit_code, told.stdout.strip()) == (0, "healthy")
        assert "was not looked at" in told.stderr
    finally:
        owner.release()


@pytest.mark.parametrize("damage", [b"something else " * 400, b""])
def test_a_foreign_file_in_place_of_the_database_is_not_touched(learned: Path, damage: bytes) -> None:
    file = learned / ".evolve" / "evolve.db"
    kept = file.read_bytes()
    file.write_bytes(damage)
    assert complaint(learned, "playbook", "list", code=1)
    assert file.read_bytes() == damage
    file.write_bytes(kept)
    assert evolve(learned, "memory", "doctor").strip() == "healthy"


def test_damaged_pages_are_told(learned: Path) -> None:
    file = learned / ".evolve" / "evolve.db"
    body = bytearray(file.read_bytes())
    for page in range(4096 * 4, len(body), 4096):
        body[page : page + 64] = os.urandom(64)
    file.write_bytes(body)
    for line in ("playbook list", "report", "memory stats"):
        assert "evolve memory salvage" in complaint(learned, *line.split(), code=1)


@pytest.mark.parametrize("kilobytes", [230, 320, 420])
def test_a_full_disk_stops_a_run_which_goes_on_elsewhere(tmp_path: Path, once_learned: Path, kilobytes: int) -> None:
    folder = settings(tmp_path)
    limit = kilobytes * 1024
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("evolve")), "run"],
        cwd=folder,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert ran.returncode == 1, ran.stderr
    assert "space" in one_sentence(ran.stderr)
    evolve(folder, "memory", "reindex")  # opens for writing: finishes a database whose making met the full disk
    begun = bool(evolve_json(folder, "logs", "list"))
    done = evolve_json(folder, *(["resume"] if begun else ["run"]))
    assert done["whole"]["tasks"] == TASKS
    assert evolve(folder, "memory", "doctor").strip() == "healthy"
    rows, undisturbed = (evolve_json(where, "playbook", "list", "--all") for where in (folder, once_learned))
    assert rows == undisturbed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--limit", "x"), "Invalid value for '--limit'"),
        (("run", "--nope"), "No such option: --nope"),
        (("nonsense",), "No such command 'nonsense'"),
    ],
)
def test_wrong_usage_is_json_where_json_was_asked_for(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    error = evolve_json(tmp_path, *arguments, code=2)["error"]
    assert error["type"] == "UsageError"
    assert said in error["message"]


def test_damaged_checkpoints_are_deleted_and_the_run_goes_on(learned: Path) -> None:
    evolve(learned, "run", "--limit", "1")
    checkpoints = learned / ".evolve" / "checkpoints.db"
    checkpoints.write_bytes(b"damaged " * 512)
    assert "Delete this file" in complaint(learned, "run", "--limit", "2", code=1)
    checkpoints.unlink()
    evolve(learned, "resume")
