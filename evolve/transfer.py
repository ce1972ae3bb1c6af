"""Carries a whole workspace elsewhere: one archive with the database and a manifest of hashes.

The database holds everything that was learned, with its trust; the vector index is rebuilt where it arrives. Nothing in
the archive is executed, and a file that is not in the manifest, or differs from it, is refused.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from memory.errors import BadInput, NotFound
from memory.sql import sqlite3

DATABASE, MANIFEST = "evolve.db", "manifest.json"
FORMAT = 1


def export_workspace(workspace: Path, archive: Path) -> str:
    """Write the archive and return the database's sha256. Raises `NotFound` without a workspace.

    The copy is consistent even while a run writes.
    """
    source = workspace / DATABASE
    if not source.is_file():
        raise NotFound(f"no workspace at {str(workspace)!r}; run `evolve init` or go to the folder that has one")
    with tempfile.TemporaryDirectory() as folder:
        copy, manifest = Path(folder) / DATABASE, Path(folder) / MANIFEST
        with closing(sqlite3.connect(source)) as reader, closing(sqlite3.connect(copy)) as writer:
            reader.backup(writer)
        digest = _sha256(copy)
        manifest.write_text(json.dumps({"format": FORMAT, "sha256": {DATABASE: digest}}), encoding="utf-8")
        with tarfile.open(archive, "w:gz") as out:
            out.add(manifest, MANIFEST)
            out.add(copy, DATABASE)
    return digest


def import_workspace(archive: Path, workspace: Path) -> str:
    """Unpack an archive into a new workspace and return the database's sha256.

    Raises `BadInput` for an archive that is none or was changed, and where a workspace exists already.
    """
    if (workspace / DATABASE).exists():
        raise BadInput(f"{str(workspace)!r} holds a workspace already; choose another folder")
    with _member(archive, MANIFEST) as stream:
        try:
            expected: str = json.loads(stream)["sha256"][DATABASE]
        except (ValueError, KeyError, TypeError) as problem:
            raise BadInput(f"{str(archive)!r} has no readable {MANIFEST}; export it again") from problem
    with _member(archive, DATABASE) as body:
        digest = hashlib.sha256(body).hexdigest()
        if digest != expected:
            raise BadInput(f"{str(archive)!r} was changed after it was exported: {digest} is not {expected}")
        workspace.mkdir(parents=True, exist_ok=True)
        (workspace / DATABASE).write_bytes(body)
    return digest


@contextmanager
def _member(archive: Path, name: str) -> Iterator[bytes]:
    try:
        with tarfile.open(archive, "r:gz") as bundle:
            stream = bundle.extractfile(name)
            if stream is None:
                raise BadInput(f"{name} in {str(archive)!r} is no file; export it again")
            yield stream.read()
    except FileNotFoundError as missing:
        raise NotFound(f"no file {str(archive)!r}") from missing
    except (tarfile.TarError, EOFError, KeyError, OSError) as problem:
        raise BadInput(f"{str(archive)!r} is no workspace archive: {problem}") from problem


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
