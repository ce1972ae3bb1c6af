"""A workspace on a PostgreSQL server, through the command: `memory.database`.

S1  a run there learns what it learns in a file, and every verb reads it
S2  a run that stopped on one machine goes on at another, and ends as one that never stopped
S3  two machines that work at the same time lose nothing
S4  `evolve workspace move` takes a workspace there and back, and says what to write
S5  what a server cannot do, or an address may not hold, is one sentence
S6  two machines serve one workspace: a token of one opens the other, until anybody revokes it
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import evolve as library
from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from evolve.service.app import create_app
from evolve.workspace.relocation import move_workspace
from memory.journal import Journal
from tests.evolve.command import complaint, evolve, evolve_json, finish, invoke, settings, start
from tests.postgres import workspace_address

TASKS = 8


def machine(folder: Path, address: str, *, namespace: str = "default", more: str = "") -> Path:
    """Write the settings of one machine that uses the workspace at an address, and return its folder."""
    settings(folder, tasks=TASKS, more=more)
    file = folder / "evolve.toml"
    memory = f'[memory]\ndatabase = "{address}"\nnamespace = "{namespace}"\n'
    file.write_text(file.read_text().replace("[memory]\n", memory))
    return folder


def knowledge(folder: Path) -> list[tuple[str, str, str]]:
    """Return label, text and status of all records."""
    return [(row["label"], row["content"], row["status"]) for row in evolve_json(folder, "playbook", "list", "--all")]


def curve(folder: Path) -> tuple[list[bool], int, float]:
    """Return which tasks of the latest run were solved, how much was learned, and success without memory."""
    report = evolve_json(folder, "report")
    return report["curve"], report["learned"], report["control"]["tgc"]


@pytest.fixture(scope="module")
def in_a_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = settings(tmp_path_factory.mktemp("file"), tasks=TASKS)
    evolve(folder, "run")
    return folder


@pytest.fixture(scope="module")
def on_a_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = machine(tmp_path_factory.mktemp("server"), workspace_address())
    evolve(folder, "run")
    return folder


def test_s1_a_run_learns_what_it_learns_in_a_file(in_a_file: Path, on_a_server: Path) -> None:
    assert knowledge(on_a_server) == knowledge(in_a_file) != []
    assert not (on_a_server / ".evolve" / "evolve.db").exists()
    assert curve(on_a_server) == curve(in_a_file)


@pytest.mark.parametrize(
    "verb",
    [
        "playbook show 1",
        "playbook log",
        "playbook blame 1",
        "playbook contradictions",
        "notebook list",
        "skills list",
        "exemplars list",
        "logs list",
        "gates log",
        "review list",
        "memory search mail",
        "memory stats",
        "memory doctor",
        "memory reindex",
        "train plan",
    ],
)
def test_s1_every_verb_reads_it(on_a_server: Path, verb: str) -> None:
    json.loads(evolve(on_a_server, *verb.split(), "--json"))


def test_s1_it_is_backed_up_exported_and_begun_from_elsewhere(on_a_server: Path, tmp_path: Path) -> None:
    made = evolve_json(on_a_server, "backup", str(tmp_path / "kept"))
    assert made["records"] == len(knowledge(on_a_server))
    evolve(on_a_server, "export", "html", str(tmp_path / "page.html"))
    evolve(on_a_server, "export", "--workspace", str(tmp_path / "all.tgz"))
    elsewhere = settings(tmp_path / "elsewhere")
    evolve(elsewhere, "init", ".", "--from", str(tmp_path / "all.tgz"))
    assert knowledge(elsewhere) == knowledge(on_a_server)


def test_s1_what_was_learned_is_forgotten_and_rolled_back_there(on_a_server: Path) -> None:
    before = knowledge(on_a_server)
    evolve(on_a_server, "playbook", "add", "what nobody needs")
    (added,) = set(knowledge(on_a_server)) - set(before)
    evolve(on_a_server, "memory", "forget", added[0], "--purge", "--yes")
    assert knowledge(on_a_server) == before
    assert evolve(on_a_server, "memory", "doctor").strip() == "healthy"


def test_s2_a_run_goes_on_at_another_machine(in_a_file: Path, tmp_path: Path) -> None:
    address = workspace_address()
    first = machine(tmp_path / "first", address, more="\n[budget]\ncalls = 30\n")
    second = machine(tmp_path / "second", address)
    stopped = invoke(first, "run")
    assert "budget" in stopped.output
    (run,) = evolve_json(second, "logs", "list")
    assert run["status"] == "stopped"
    evolve(second, "resume")
    assert knowledge(second) == knowledge(in_a_file)
    assert curve(second) == curve(in_a_file)


def test_s2_a_run_that_is_being_worked_on_is_not_taken_up_elsewhere(tmp_path: Path) -> None:
    address = workspace_address()
    first = machine(tmp_path / "first", address, more="\n[budget]\ncalls = 30\n")
    invoke(first, "run")
    second = machine(tmp_path / "second", address)
    (run,) = evolve_json(second, "logs", "list")
    with open_store(load_config(first / "evolve.toml")) as store, store.journal.engine.lease(run["run"]) as mine:
        assert mine
        assert "being worked on by another process" in complaint(second, "resume", code=1)


def test_s3_two_machines_at_once_lose_nothing(in_a_file: Path, tmp_path: Path) -> None:
    address = workspace_address()
    folders = [machine(tmp_path / name, address, namespace=name) for name in ("north", "south")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda folder: finish(start(folder, "run")), folders))
    for folder in folders:
        assert knowledge(folder) == knowledge(in_a_file)
    assert evolve(folders[0], "memory", "doctor").strip() == "healthy"
    assert len(evolve_json(folders[0], "logs", "list")) == 2


def test_s4_a_workspace_moves_there_and_back(in_a_file: Path, tmp_path: Path) -> None:
    address = workspace_address()
    moved = evolve_json(in_a_file, "workspace", "move", "--to", address)
    assert moved["target"].startswith("postgresql://")
    there = machine(tmp_path / "there", address)
    assert knowledge(there) == knowledge(in_a_file)
    assert "holds a workspace of" in complaint(in_a_file, "workspace", "move", "--to", address, code=2)
    told = evolve(there, "workspace", "move", "--to", "sqlite")
    assert moved["sha256"] in told
    assert "take `database` out of [memory]" in told
    back = settings(there, tasks=TASKS)
    assert knowledge(back) == knowledge(in_a_file)
    assert "there already" in complaint(back, "workspace", "move", "--to", "sqlite", code=2)


def test_s4_it_comes_back_to_the_folder_that_it_left_and_what_was_there_is_kept(tmp_path: Path) -> None:
    address = workspace_address()
    folder = settings(tmp_path, tasks=TASKS, index="chroma")
    evolve(folder, "playbook", "add", "written before the move")
    evolve(folder, "workspace", "move", "--to", address)
    machine(folder, address)
    evolve(folder, "run")
    evolve(folder, "playbook", "add", "written on the server")
    expected = knowledge(folder)
    evolve(folder, "workspace", "move", "--to", "sqlite")
    settings(folder, tasks=TASKS, index="chroma")
    assert knowledge(folder) == expected
    assert evolve(folder, "memory", "doctor").strip() == "healthy"
    (before,) = (folder / ".evolve").glob("evolve.db.before-*")
    assert before.stat().st_size


def test_s4_the_old_index_is_gone_once_the_new_file_is_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = workspace_address()
    folder = settings(tmp_path, tasks=TASKS)
    evolve(folder, "playbook", "add", "written before the move")
    evolve(folder, "workspace", "move", "--to", address)
    machine(folder, address)
    index = folder / ".evolve" / "index"
    index.mkdir()
    rename = Path.rename

    def killed_after(source: Path, target: Path) -> Path:
        moved = rename(source, target)
        if target.name == "evolve.db":
            raise KeyboardInterrupt
        return moved

    monkeypatch.setattr(Path, "rename", killed_after)
    with pytest.raises(KeyboardInterrupt):
        move_workspace(load_config(folder / "evolve.toml"), "sqlite")
    assert (folder / ".evolve" / "evolve.db").exists()
    assert not index.exists()


def test_s4_a_file_that_is_open_elsewhere_stays_as_it_is(tmp_path: Path) -> None:
    address = workspace_address()
    folder = settings(tmp_path, tasks=TASKS)
    evolve(folder, "playbook", "add", "written before the move")
    evolve(folder, "workspace", "move", "--to", address)
    file = folder / ".evolve" / "evolve.db"
    with closing(Journal(file, read_only=True)) as reader:
        reader.position()
        evolve(folder, "playbook", "add", "written to the old file")
        machine(folder, address)
        evolve(folder, "playbook", "add", "written on the server")
        expected = knowledge(folder)
        told = complaint(folder, "workspace", "move", "--to", "sqlite", code=1)
        assert "is open in another process (it left evolve.db-wal and evolve.db-shm)" in told
        assert list(file.parent.glob("*.before-*")) == []
    settings(folder, tasks=TASKS)
    assert evolve(folder, "memory", "doctor").strip() == "healthy"
    assert "written to the old file" in {text for _, text, _ in knowledge(folder)}
    machine(folder, address)
    evolve(folder, "workspace", "move", "--to", "sqlite")
    settings(folder, tasks=TASKS)
    assert knowledge(folder) == expected


def test_s4_a_backup_says_how_it_is_put_in_the_place_of_a_server(tmp_path: Path) -> None:
    folder = machine(tmp_path, workspace_address())
    evolve(folder, "playbook", "add", "written before the backup")
    expected = knowledge(folder)
    assert "take `database` out of [memory]" in evolve(folder, "backup")
    evolve(folder, "playbook", "add", "written after it")
    (made,) = (folder / "backups").iterdir()
    told = (made / "RESTORE.txt").read_text()
    assert f"Take `database` out of [memory] in {folder}/evolve.toml" in told
    assert "evolve.toml is the settings file without the server" in told
    shutil.move(folder / ".evolve", folder / "away")
    shutil.copytree(made, folder / ".evolve")
    assert len(knowledge(folder)) == 2, "what it says is needed"
    settings(folder, tasks=TASKS)
    assert knowledge(folder) == expected
    assert evolve(folder, "memory", "doctor").strip() == "healthy"


def test_s4_what_is_exported_or_backed_up_names_no_server(on_a_server: Path, tmp_path: Path) -> None:
    expected = knowledge(on_a_server)
    kept = Path(evolve_json(on_a_server, "backup", str(tmp_path / "kept"))["path"])
    assert "postgresql" not in (kept / "evolve.toml").read_text()
    with library.open(kept) as memory:
        assert len(memory.knowledge("all")) == len(expected)
    evolve(on_a_server, "export", "--workspace", str(tmp_path / "all.tgz"))
    (tmp_path / "new").mkdir()
    evolve(tmp_path / "new", "init", ".", "--from", str(tmp_path / "all.tgz"))
    assert knowledge(tmp_path / "new") == expected
    other = machine(tmp_path / "other", workspace_address())
    told = complaint(other, "init", ".", "--from", str(tmp_path / "all.tgz"), code=2)
    assert "take `database` out of [memory]" in told


def test_s4_reading_makes_no_workspace(tmp_path: Path) -> None:
    folder = machine(tmp_path, workspace_address())
    for verb in (["backup"], ["export", "--workspace", "x.tgz"], ["memory", "stats"]):
        assert "no workspace in postgresql://" in complaint(folder, *verb, code=1)


@pytest.mark.parametrize(
    ("memory", "arguments", "code", "said"),
    [
        ('database = "postgresql://me:secret@host/x"', "run", 2, "PGPASSWORD"),
        ('database = "host=here password=secret"', "run", 2, "PGPASSWORD"),
        ('database = "postgresql://evolve@localhost:1/x"\nindex = "exact"', "run", 1, "Is the server running"),
        ('database = "postgresql://evolve@localhost:1/x"\nindex = "exact"', "memory salvage", 2, "evolve backup"),
        ('index = "exact"', "workspace move --to postgresql://me:secret@host/x", 2, "PGPASSWORD"),
        ('database = "postgresql://host/x?sslmode=verify-full&sslpassword=secret"', "run", 2, "PGPASSWORD"),
    ],
)
def test_s5_what_cannot_be_is_one_sentence(tmp_path: Path, memory: str, arguments: str, code: int, said: str) -> None:
    (tmp_path / "evolve.toml").write_text(f"[memory]\n{memory}\n")
    told = complaint(tmp_path, *arguments.split(), code=code)
    assert said in told
    assert "secret" not in told


def test_s5_a_vector_index_of_one_machine_is_refused(tmp_path: Path) -> None:
    folder = machine(tmp_path, workspace_address())
    assert 'write `index = "exact"`' in complaint(folder, "run", "--set", "memory.index=chroma", code=2)


def test_s5_arms_of_a_comparison_stay_on_this_machine(on_a_server: Path, tmp_path: Path) -> None:
    run = evolve_json(on_a_server, "logs", "list")[0]["run"]
    assert "evolve backup" in complaint(on_a_server, "compare", "here", run, code=2)


def test_the_library_opens_it_as_any_other(tmp_path: Path) -> None:
    folder = machine(tmp_path, workspace_address())
    with library.open(folder) as memory, memory.task("Book room 4") as task:
        task.finish("booked", success=True)
    with library.open(folder) as memory:
        assert [run.solved for run in memory.runs()] == [1]


def test_s6_a_token_opens_every_server_of_the_workspace_until_it_is_revoked(tmp_path: Path) -> None:
    address = workspace_address()
    one, other = machine(tmp_path / "one", address), machine(tmp_path / "other", address)
    given = evolve_json(one, "tokens", "add", "agent", "--scope", "read", "--scope", "report")["token"]
    headers = {"authorization": f"Bearer {given}"}
    lesson = {"lesson": "Ask twice before you pay more than a thousand."}
    with (
        TestClient(create_app(load_config(one / "evolve.toml")), headers=headers) as here,
        TestClient(create_app(load_config(other / "evolve.toml")), headers=headers) as there,
    ):
        assert here.post("/api/v1/proposals", json=lesson).json()["answer"] == "quarantined"
        known = there.get("/api/v1/knowledge", params={"show": "quarantined"}).json()
        assert [row["content"] for row in known] == [lesson["lesson"]]
        evolve(other, "tokens", "revoke", "agent")
        assert here.get("/api/v1/token").status_code == 401
        assert there.get("/api/v1/token").status_code == 401
    assert {run["kind"] for run in evolve_json(one, "logs", "list")} == {"rest"}
