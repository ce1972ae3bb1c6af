"""A workspace goes elsewhere whole or not at all: `evolve export --workspace`, `evolve init --from`."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.random_adapters import random_adapter
from evolve.archive.transfer import import_workspace
from evolve.config.file import load_config
from evolve.generations.workspace_registry import model_directory, open_registry
from memory.errors import BadInput
from policies.generations.swap import checked
from tests.evolve.command import complaint, evolve, evolve_json

Parts = dict[str, bytes]


@pytest.fixture
def archive(learned: Path, tmp_path: Path) -> Path:
    """Return a fresh archive of a workspace that has learned."""
    evolve(learned, "export", "--workspace", str(tmp_path / "w.tar.gz"))
    return tmp_path / "w.tar.gz"


def rewrite(archive: Path, change: Callable[[Parts], None], *, rehash: bool = False) -> Path:
    """Change the parts of an archive; with `rehash` by somebody who knows about the manifest."""
    with tarfile.open(archive) as bundle:
        parts: Parts = {member.name: bundle.extractfile(member).read() for member in bundle}  # type: ignore[union-attr]
    change(parts)
    if rehash:
        about = json.loads(parts["manifest.json"])
        about["sha256"] = {name: hashlib.sha256(parts[name]).hexdigest() for name in parts if name != "manifest.json"}
        parts["manifest.json"] = json.dumps(about).encode()
    with tarfile.open(archive, "w:gz") as bundle:
        for name, body in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            bundle.addfile(member, io.BytesIO(body))
    return archive


def test_everything_arrives_with_its_trust(learned: Path, archive: Path, tmp_path: Path) -> None:
    new = tmp_path / "elsewhere"
    arrived = evolve_json(tmp_path, "init", "elsewhere", "--from", str(archive))
    exported = evolve_json(learned, "export", "--workspace", str(tmp_path / "again.tar.gz"))
    assert arrived["sha256"] == exported["sha256"]
    for line in ("playbook list --all", "playbook log", "logs list", "report", "memory doctor"):
        assert evolve_json(new, *line.split()) == evolve_json(learned, *line.split())
    assert (new / "evolve.toml").read_text() == (learned / "evolve.toml").read_text()
    before = evolve_json(learned, "eval", "--limit", "12")["evaluations"][0]
    after = evolve_json(new, "eval", "--limit", "12")["evaluations"][0]
    assert after["passed"] == before["passed"]
    assert after["snapshot_id"] == before["snapshot_id"]


def test_what_came_along_is_said(archive: Path, tmp_path: Path) -> None:
    told = evolve(tmp_path, "init", "elsewhere", "--from", str(archive))
    assert "sha256" in told
    assert "policy evolve.environments.office.worker:worker" in told


def test_settings_that_are_there_stay(archive: Path, tmp_path: Path) -> None:
    mine = "[environment]\ndeployment = 5\n"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "evolve.toml").write_text(mine)
    assert "settings came along" not in evolve(tmp_path, "init", "elsewhere", "--from", str(archive))
    assert (tmp_path / "elsewhere" / "evolve.toml").read_text() == mine
    assert len(evolve_json(tmp_path / "elsewhere", "playbook", "list")) >= 3


def test_a_workspace_is_not_overwritten(learned: Path, archive: Path) -> None:
    evolve(learned, "playbook", "add", "Mine.")
    before = evolve_json(learned, "playbook", "list")
    assert "choose another folder" in complaint(learned, "init", ".", "--from", str(archive), code=2)
    assert evolve_json(learned, "playbook", "list") == before


@pytest.mark.parametrize("there", ["policies/policies.db", "policies/adapters/policy-v1/README.md"])
def test_generations_are_not_overwritten(there: str, with_generation: Path, tmp_path: Path) -> None:
    evolve(with_generation, "export", "--workspace", str(tmp_path / "w.tar.gz"))
    mine = tmp_path / "elsewhere" / ".evolve" / there
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    said = complaint(tmp_path, "init", "elsewhere", "--from", str(tmp_path / "w.tar.gz"), code=2)
    assert f"holds a workspace already ({there})" in said
    assert [path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("left", ["evolve.db-wal", "evolve.db-shm"])
def test_what_a_lost_database_left_is_not_mixed_with_the_new_one(left: str, archive: Path, tmp_path: Path) -> None:
    beside = tmp_path / "elsewhere" / ".evolve" / left
    beside.parent.mkdir(parents=True)
    beside.write_bytes(b"of another database")
    said = complaint(tmp_path, "init", "elsewhere", "--from", str(archive), code=2)
    assert f"Move {left} away" in said
    assert [path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()] == [beside]
    beside.unlink()
    evolve(tmp_path, "init", "elsewhere", "--from", str(archive))


@pytest.mark.parametrize("database", [True, False])
def test_what_cannot_be_written_whole_leaves_nothing(
    database: bool, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, copy = tmp_path / "elsewhere", shutil.copyfile

    def half(source: Path, path: Path) -> Path:
        if path.is_relative_to(new) and path.name.startswith("evolve.db" if database else "evolve.toml"):
            data = source.read_bytes()
            path.write_bytes(data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        return copy(source, path)

    monkeypatch.setattr(shutil, "copyfile", half)
    with pytest.raises(OSError, match="No space"):
        import_workspace(archive, new)
    assert not new.exists()
    monkeypatch.undo()
    evolve(tmp_path, "init", "elsewhere", "--from", str(archive))
    assert not list(new.rglob("*.part"))


def test_settings_that_name_code_come_along_only_where_that_is_allowed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "evolve.toml").write_text('[policy]\nmodel = "llama:small"\n[environment]\nname = "my.world:World"\n')
    evolve(source, "playbook", "add", "Say the amount in cents.")
    evolve(source, "export", "--workspace", "all.tar.gz")
    given = ("--from", str(source / "all.tar.gz"))
    said = complaint(tmp_path, "init", "elsewhere", *given, code=2)
    assert "names code that the next command would run (environment.name = 'my.world:World')" in said
    assert not (tmp_path / "elsewhere").exists()
    evolve(tmp_path, "init", "elsewhere", *given, "--allow-code")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "evolve.toml").write_text("")
    evolve(tmp_path, "init", "own", *given)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ('[policy]\nname = "scripted"\nmodel = "this:d"\n', "policy.model = 'this:d'"),
        ('[policy.judge]\nname = "scripted"\nmodel = "this:d"\n', "policy.judge.model = 'this:d'"),
        ('[playbook]\ncurator = "direct+antigravity:geohash"\n', "playbook.curator = 'direct+antigravity:geohash'"),
        ('[policy]\nname = "openai"\nmodel = "llama:small"\n', ""),
    ],
)
def test_code_is_found_wherever_settings_name_it(tmp_path: Path, settings: str, named: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "evolve.toml").write_text(settings)
    evolve(source, "playbook", "add", "Say the amount in cents.")
    evolve(source, "export", "--workspace", "all.tar.gz")
    if named:
        with pytest.raises(BadInput, match=re.escape(f"names code that the next command would run ({named})")):
            import_workspace(source / "all.tar.gz", tmp_path / "elsewhere")
    else:
        import_workspace(source / "all.tar.gz", tmp_path / "elsewhere")


class FullDisk(io.BytesIO):
    """A file that takes nothing."""

    def write(self, data: object) -> int:
        raise OSError(28, "No space left on device")


def test_a_disk_that_is_full_while_an_archive_is_unpacked_is_no_fault_of_the_archive(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode="r": FullDisk() if mode == "wb" else opened(path, mode))
    with pytest.raises(OSError, match="No space"):
        import_workspace(archive, tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def flip(parts: Parts) -> None:
    body = bytearray(parts["evolve.db"])
    body[len(body) // 2] ^= 0xFF
    parts["evolve.db"] = bytes(body)


def edit(parts: Parts, tmp: Path) -> None:
    """Change a rule's text with SQL, as somebody might who wants it to keep its trust."""
    file = tmp / "edited.db"
    file.write_bytes(parts["evolve.db"])
    with sqlite3.connect(file) as db:
        db.execute("UPDATE content SET body = replace(body, 'must', 'must not')")
    db.close()
    parts["evolve.db"] = file.read_bytes()


def escape(parts: Parts) -> None:
    parts["evolve.toml"] = b'[memory]\nworkspace = "../outside"\n'


@pytest.mark.parametrize(
    ("change", "rehash", "said"),
    [
        (flip, False, "evolve.db in"),
        (lambda parts: parts.update({"evolve.toml": b"[run]\n"}), False, "evolve.toml in"),
        (lambda parts: parts.pop("manifest.json"), False, "lacks a part"),
        (lambda parts: parts.pop("evolve.db"), False, "lacks a part"),
        (lambda parts: parts.update({"manifest.json": b"[]"}), False, "lacks a part"),
        (lambda parts: parts.update({"manifest.json": b'{"format": 1, "sha256": []}'}), False, "lacks a part"),
        (lambda parts: parts.update({"manifest.json": b'{"format": 2}'}), False, "has format 2, this version reads 1"),
        (lambda parts: parts.update({"evolve.db": b"no database at all" * 99}), True, "no evolve workspace"),
        (lambda parts: parts.update({"evolve.toml": b"[rnu]\n"}), True, "did you mean 'run'"),
        (escape, True, "outside of"),
    ],
)
def test_a_changed_archive_is_refused_and_leaves_nothing(
    change: Callable[[Parts], None], rehash: bool, said: str, archive: Path, tmp_path: Path
) -> None:
    rewrite(archive, change, rehash=rehash)
    code = 1 if said == "no evolve workspace" else 2
    assert said in complaint(tmp_path, "init", "elsewhere", "--from", str(archive), code=code)
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "outside").exists()


def test_text_changed_behind_the_journals_back_is_seen(archive: Path, tmp_path: Path) -> None:
    rewrite(archive, lambda parts: edit(parts, tmp_path), rehash=True)
    assert "damaged" in complaint(tmp_path, "init", "elsewhere", "--from", str(archive), code=2)
    assert not (tmp_path / "elsewhere").exists()


def test_a_damaged_archive_is_refused_wherever_the_damage_is(archive: Path, tmp_path: Path) -> None:
    body, refused = archive.read_bytes(), 0
    places = range(0, len(body), 97)
    for at in places:
        archive.write_bytes(body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :])
        try:
            import_workspace(archive, tmp_path / str(at))
        except BadInput:
            refused += 1
    assert refused > 0.9 * len(places)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_text("hello")
    (tmp_path / "b.tgz").write_bytes(b"\x1f\x8b\x08\x00" + b"\x00" * 30)
    for name in ("a.tgz", "b.tgz"):
        assert "no workspace archive" in complaint(tmp_path, "init", "new", "--from", name, code=2)
    assert "no file" in complaint(tmp_path, "init", "new", "--from", "c.tgz", code=1)
    assert not (tmp_path / "new").exists()


def test_an_archive_that_cannot_be_written_is_one_sentence(learned: Path, tmp_path: Path) -> None:
    (tmp_path / "no").write_text("a file where a folder would have to be")
    where = str(tmp_path / "no" / "such" / "folder.tar.gz")
    assert str(tmp_path / "no") in complaint(learned, "export", "--workspace", where, code=1)


@pytest.fixture
def with_generation(learned: Path, tmp_path: Path) -> Path:
    """Return the workspace with a live generation of the pocket model."""
    config = load_config(learned / "evolve.toml")
    section = config.policy.model_copy(update={"name": "pocket"})
    adapter = random_adapter(model_directory(section), tmp_path / "adapter", 1)
    with open_registry(section, config.workspace) as registry:
        made = registry.publish(adapter, base=registry.base, metrics={"tgc": 0.5}, config={})
        registry.accept(made.version, {})
        registry.promote(made.version)
    return learned


def test_generations_come_along(with_generation: Path, tmp_path: Path) -> None:
    evolve(with_generation, "export", "--workspace", str(tmp_path / "w.tar.gz"))
    evolve(tmp_path, "init", "elsewhere", "--from", str(tmp_path / "w.tar.gz"))
    found = []
    for folder in (with_generation, tmp_path / "elsewhere"):
        config = load_config(folder / "evolve.toml")
        section = config.policy.model_copy(update={"name": "pocket"})
        with open_registry(section, config.workspace, read_only=True) as registry:
            live = registry.live()
        assert checked(live, 64).is_relative_to(folder)
        found.append((live.version, live.sha256, live.metrics))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "name", ["policies/adapters/policy-v1/../../../x.json", "policies/adapters/policy-v1/a.pkl", "/x.json"]
)
def test_a_foreign_file_does_not_arrive(name: str, with_generation: Path, tmp_path: Path) -> None:
    evolve(with_generation, "export", "--workspace", str(tmp_path / "w.tar.gz"))
    rewrite(tmp_path / "w.tar.gz", lambda parts: parts.update({name: b"{}"}), rehash=True)
    evolve(tmp_path, "init", "elsewhere", "--from", str(tmp_path / "w.tar.gz"))
    assert not list(tmp_path.rglob("x.json"))
    assert not list(tmp_path.rglob("a.pkl"))
