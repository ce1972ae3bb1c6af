"""Carries a whole workspace elsewhere: one archive with the database, the settings and a manifest of hashes.

The database holds everything that was learned, with its trust; the vector index is made again where it arrives. The
generations of the policy come along, registry and adapters. Nothing in the archive is executed. A part that is missing
or differs from the manifest is refused, and so is a database that does not say what its own journal says; then nothing
is left behind.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, cast

import tomlkit

from evolve.config.file import FILE, load_config
from evolve.config.model import Config
from evolve.environments.office.worker import worker
from evolve.generations.workspace_registry import FOLDER as POLICIES
from evolve.loop.assembly import DATABASE, is_there
from memory.doctor import examine
from memory.errors import BadInput, NotFound
from memory.indexes import for_a_copy
from memory.journal import Journal
from memory.moving import copy_to
from memory.records import Frozen
from memory.sqlite.database import copy_database, logs_of
from policies.generations.generation_registry import DATABASE as REGISTRY_DATABASE
from policies.generations.storage import FOLDER as ADAPTERS

MANIFEST = "manifest.json"
FORMAT = 1
"""Of an archive; one of another is not read."""
HASHES = "sha256"
PIECE = 1 << 20
REGISTRY = f"{POLICIES}/{REGISTRY_DATABASE}"
_ADAPTER = re.compile(rf"{POLICIES}/{ADAPTERS}/policy-v[0-9]{{1,9}}/[\w-]+\.(?:json|safetensors|md)")
"""What an adapter may consist of: no code, no pickles, nothing outside of its folder."""
_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_MODELLED = ("pocket", "local", "served", "openai", "langchain")
"""Policies whose `model` is the name of a model."""
_WORKER = f"{worker.__module__}:{worker.__name__}"
"""The scripted policy that ships for the office."""


class Arrived(Frozen):
    """What `import_workspace` brought."""

    sha256: str
    """Of the database, as `evolve export` printed it."""
    settings: bool
    """Whether evolve.toml came along too."""


def export_workspace(config: Config, archive: Path) -> str:
    """Write the archive and return the database's sha256; folders of it that are not there are made.

    Raises `NotFound` without a workspace, and `BadInput` where `archive` is a folder.

    The copy is consistent even while a run writes. evolve.toml goes along where there is one.
    """
    require_workspace(config)
    with tempfile.TemporaryDirectory() as folder:
        copy, manifest = Path(folder) / DATABASE, Path(folder) / MANIFEST
        copy_workspace(config, copy)
        kept = Path(folder) / FILE
        parts = {DATABASE: copy} | ({FILE: kept} if copy_settings(config, kept) else {})
        parts |= _generations(config, Path(folder))
        hashes = {name: sha256_of(path) for name, path in parts.items()}
        manifest.write_text(json.dumps({"format": FORMAT, HASHES: hashes}), encoding="utf-8")
        bundle = Path(folder) / "bundle"
        with tarfile.open(bundle, "w:gz") as out:
            for name, path in {MANIFEST: manifest, **parts}.items():
                out.add(path, name)
        _put(bundle, archive)
    return hashes[DATABASE]


def _generations(config: Config, scratch: Path) -> dict[str, Path]:
    """Return the parts that are the policy's generations; none where no model was trained."""
    home = config.workspace / POLICIES
    if not (home / REGISTRY_DATABASE).is_file():
        return {}
    copy_database(home / REGISTRY_DATABASE, scratch / REGISTRY_DATABASE)
    files = (path for path in sorted((home / ADAPTERS).rglob("*")) if path.is_file())
    named = {path.relative_to(config.workspace).as_posix(): path for path in files}
    return {REGISTRY: scratch / REGISTRY_DATABASE} | {k: path for k, path in named.items() if _ADAPTER.fullmatch(k)}


def require_workspace(config: Config) -> None:
    """Raise `NotFound` where there is none."""
    if not is_there(config):
        raise NotFound(f"no workspace at {str(config.workspace)!r}; run `evolve init` or go to the folder that has one")


def copy_workspace(config: Config, copy: Path) -> None:
    """Write a workspace, as it is at one moment, to a SQLite file."""
    source = config.workspace / DATABASE
    if config.memory.database:
        with closing(Journal(source, read_only=True, database=config.memory.database)) as journal:
            copy_to(journal, copy)
        return
    copy_database(source, copy)


def copy_settings(config: Config, copy: Path) -> bool:
    """Copy evolve.toml, if there is one, for a workspace that is in a file: it names no server. Tell whether it is."""
    if not (config.root / FILE).is_file():
        return False
    settings = tomlkit.parse((config.root / FILE).read_text(encoding="utf-8"))
    memory = settings.get("memory", {})
    memory.pop("database", None)
    if "index" in memory:
        memory["index"] = for_a_copy(str(memory["index"]))
    copy.write_text(tomlkit.dumps(settings), encoding="utf-8")
    return True


def _put(bundle: Path, archive: Path) -> None:
    """Copy the finished file to its place; until all of it is there, what stood there stays."""
    if archive.is_dir():
        raise BadInput(f"{str(archive)!r} is a folder; name a file in it, for example {str(archive / 'all.tar.gz')!r}")
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_name(f"{archive.name}.part")
    try:
        shutil.copyfile(bundle, part)
        part.replace(archive)
    finally:
        part.unlink(missing_ok=True)


def import_workspace(archive: Path, folder: Path, *, code: bool = False) -> Arrived:
    """Unpack an archive into `folder`, whose own evolve.toml, if it has one, stays.

    Settings that name code, which the next command would run, come along only with `code`. Raises `BadInput` for an
    archive that is none or was changed, and where a workspace, generations of a policy, or a file that SQLite would
    use, exist already; `NotFound`, `SchemaTooNew` and `ConfigError` as opening a workspace does. Either everything
    arrives or nothing.
    """
    with tempfile.TemporaryDirectory() as scratch:
        return _arrived(archive, _unpacked(archive, Path(scratch)), folder, code=code)


def _arrived(archive: Path, parts: Mapping[str, Path], folder: Path, *, code: bool) -> Arrived:
    """Put the parts of an archive into their places. Raises as `import_workspace`."""
    config = _destination(parts.get(FILE), folder)
    settings = FILE in parts and not (folder / FILE).exists()
    if settings and not code:
        _refuse_code(parts[FILE])
    if config.memory.database:
        raise BadInput(
            f"its settings put the workspace on a server ({folder / FILE} or the archive's), and an archive is a file; "
            "take `database` out of [memory], and move it there afterwards (`evolve workspace move`)"
        )
    taken = [name for name in sorted({*parts, REGISTRY} - {FILE}) if (config.workspace / name).exists()]
    if taken:
        raise BadInput(f"{str(config.workspace)!r} holds a workspace already ({taken[0]}); choose another folder")
    if logs := " and ".join(log.name for log in logs_of(config.workspace / DATABASE)):
        raise BadInput(
            f"{str(config.workspace)!r} holds {logs} of a database that is not there, and SQLite would mix the two. "
            f"Move {logs} away, or choose another folder"
        )
    _examine(parts[DATABASE], archive)
    files = {folder / FILE: parts[FILE]} if settings else {}
    files |= {config.workspace / name: parts[name] for name in sorted(parts.keys() - {FILE, DATABASE})}
    _copy(files | {config.workspace / DATABASE: parts[DATABASE]})
    return Arrived(sha256=sha256_of(parts[DATABASE]), settings=settings)


def _copy(files: Mapping[Path, Path]) -> None:
    """Copy files to their places: all of them, or, where one fails, none. Each gets its name when all are there."""
    parts = {path: path.with_name(f"{path.name}.part") for path in files}
    with ExitStack() as undo:
        for path, source in files.items():
            for folder in reversed([path.parent, *path.parent.parents]):
                if not folder.exists():
                    folder.mkdir()
                    undo.callback(_remove, folder)
            undo.callback(parts[path].unlink, missing_ok=True)
            shutil.copyfile(source, parts[path])
        for path, part in parts.items():
            if not path.exists():
                undo.callback(path.unlink, missing_ok=True)
            part.replace(path)
        undo.pop_all()


def _remove(folder: Path) -> None:
    """Remove a folder that was made, unless somebody has put something there."""
    with suppress(OSError):
        folder.rmdir()


def _destination(settings: Path | None, folder: Path) -> Config:
    """Return the configuration of the folder as it will be. Settings that point out of it are refused."""
    if (folder / FILE).exists():
        return load_config(folder / FILE)
    with tempfile.TemporaryDirectory() as scratch:
        trial = Path(scratch) / FILE
        trial.write_bytes(settings.read_bytes() if settings else b"")
        config = load_config(trial).model_copy(update={"root": folder})
    if not config.workspace.resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            f"the archive's {FILE} puts the workspace at {config.memory.workspace!r}, outside of {str(folder)!r}; "
            f"put an {FILE} of your own there first"
        )
    return config


def _refuse_code(settings: Path) -> None:
    """Refuse settings that name a module's function or class: who sent them decides what runs here."""
    named = list(_code_in(tomlkit.parse(settings.read_text(encoding="utf-8")).unwrap()))
    if named:
        raise BadInput(
            f"the archive's {FILE} names code that the next command would run ({', '.join(named)}); where you trust "
            f"it, add --allow-code, else put an {FILE} of your own there first"
        )


def _code_in(value: Any, key: str = "") -> Iterator[str]:
    """Yield the keys whose values are `module:attribute`, or such joined by `+`. The model of a policy that is no code
    may be called so too."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        models = {"model"} if table.get("name", "pocket") in _MODELLED else set[str]()
        for name in table.keys() - models:
            yield from _code_in(table[name], f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for below in cast("list[Any]", value):
            yield from _code_in(below, key)
    elif isinstance(value, str) and any(_CODE.fullmatch(each) and each != _WORKER for each in value.split("+")):
        yield f"{key} = {value!r}"


def _unpacked(archive: Path, scratch: Path) -> dict[str, Path]:
    """Write the parts of an archive into a folder; return them by name, each as the manifest says it is."""
    found: dict[str, Path] = {}
    try:
        with tarfile.open(archive, "r:gz") as bundle:
            for at, member in enumerate(bundle):
                if member.isreg() and (member.name == MANIFEST or _is_part(member.name)):
                    found[member.name] = scratch / str(at)  # a name of the archive's own could lead out
                    _unpack(bundle, member, found[member.name])
    except _Unwritten as problem:
        raise problem.error from None
    except FileNotFoundError as missing:
        raise NotFound(f"no file {str(archive)!r}; write one with `evolve export --workspace`") from missing
    except (tarfile.TarError, zlib.error, EOFError, OSError) as problem:
        raise BadInput(f"{str(archive)!r} is no workspace archive ({problem}); export it again") from problem
    try:
        about = json.loads(found[MANIFEST].read_bytes())
        if (written := about["format"]) != FORMAT:
            raise BadInput(f"{str(archive)!r} has format {written!r}, this version reads {FORMAT}; export it again")
        expected: dict[str, str] = {name: digest for name, digest in about[HASHES].items() if _is_part(name)}
        made = {name: sha256_of(found[name]) for name in {DATABASE, *expected}}
    except BadInput:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BadInput(f"{str(archive)!r} lacks a part of a workspace ({problem!r}); export it again") from problem
    changed = sorted(name for name in made if made[name] != expected.get(name))
    if changed:
        raise BadInput(
            f"{changed[0]} in {str(archive)!r} was changed after it was exported (its sha256 is {made[changed[0]]}, "
            f"the manifest says {expected.get(changed[0])}); export it again"
        )
    return {name: found[name] for name in made}


class _Unwritten(Exception):
    """The disk did not take a part, which is no fault of the archive."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _is_part(name: str) -> bool:
    """Tell whether an archive may hold a part of this name."""
    return name in (DATABASE, FILE, REGISTRY) or _ADAPTER.fullmatch(name) is not None


def _unpack(bundle: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> None:
    source = bundle.extractfile(member)
    assert source is not None, "it is a regular file"
    with source, into.open("wb") as file:
        while piece := source.read(PIECE):
            try:
                file.write(piece)
            except OSError as error:
                raise _Unwritten(error) from error


def sha256_of(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _examine(database: Path, archive: Path) -> None:
    """Open a scratch copy and compare it with its own journal."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / DATABASE
        shutil.copyfile(database, copy)
        with closing(Journal(copy)) as journal:
            wrong = [finding for finding in examine(journal) if finding.level == "error"]
    if wrong:
        raise BadInput(f"{str(archive)!r} holds a damaged workspace ({wrong[0].message}); export it again")
