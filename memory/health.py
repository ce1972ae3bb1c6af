"""Is the Chroma directory sound? Asked in a process of its own, because a damaged one can crash whoever opens it.

Run after an unclean stop. Damage is usually silent: counts are right and neighbours are missing, so the probe also
searches for vectors whose answer it knows. Nothing here repairs; `quarantine` moves a bad directory out of the way.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from memory.errors import EmbedderMismatch, IndexCorrupt
from memory.journal import Journal
from memory.protocols import Index
from memory.vectors import collection_name, from_blobs

QUERIES = 20
"""Self queries of one probe, spread over all collections."""
_NEAR = 10
_TIMEOUT = 120.0


def probe(index_dir: Path, database: Path, *, model: str, dim: int) -> str:
    """Return what is wrong with the index, or an empty string when 20 known vectors are found where they should be."""
    root = str(Path(__file__).resolve().parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-P", "-m", __spec__.name, str(index_dir), str(database), model, str(dim)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
    except subprocess.TimeoutExpired:
        return f"the probe gave no answer within {_TIMEOUT:.0f} s"
    if done.returncode < 0:
        return f"the probe was killed by signal {-done.returncode}"
    if done.returncode > 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return f"the probe failed: {last[0][:300]}"
    return str(json.loads(done.stdout.strip().splitlines()[-1])["wrong"])


def quarantine(index_dir: Path) -> Path | None:
    """Rename the directory to `<name>.quarantine-<time>` and return the new path; None when there was none."""
    if not index_dir.exists():
        return None
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return index_dir.rename(index_dir.with_name(f"{index_dir.name}.quarantine-{stamp}"))


def look(index_dir: Path, journal: Journal, *, model: str, dim: int) -> str:
    """Open the index in this process, count, search; return what is wrong, if anything. Damage may crash it."""
    from memory.indexes.chroma import ChromaIndex

    try:
        index = ChromaIndex(index_dir, model=model, dim=dim)
        there = {name: set(index.ids(name)) for name in index.collections()}
        counts = {name: index.count(name) for name in there}
        sample = _sample(journal, there, random.Random(0))
        missed = [key for key, collection, vector in sample if not _found(index, collection, key, vector, dim)]
    except (IndexCorrupt, EmbedderMismatch) as error:
        return str(error)
    index.close()
    wrong = [
        f"{name}: count {counts[name]}, ids {len(there[name])}" for name in there if counts[name] != len(there[name])
    ]
    if missed:
        wrong.append(f"{len(missed)} of {len(sample)} known vectors are not found by their own query")
    return "; ".join(wrong)


def _sample(journal: Journal, there: dict[str, set[str]], rng: random.Random) -> list[tuple[str, str, bytes]]:
    """Draw records that the index says it holds and that no waiting outbox row is about to change."""
    rows = journal.query(
        "SELECT r.id, r.namespace, r.kind FROM records r"
        " WHERE r.status IN ('provisional', 'active') AND r.forgotten = 0"
        " AND r.id NOT IN (SELECT record_id FROM outbox) ORDER BY r.row"
    )
    known = [(row[0], collection_name(row[1], row[2])) for row in rows]
    held = [(key, name) for key, name in known if key in there.get(name, ())]
    sample: list[tuple[str, str, bytes]] = []
    for key, name in rng.sample(held, min(QUERIES, len(held))):
        blob = journal.query(
            "SELECT e.vector FROM records r JOIN embeddings e ON e.record_id = r.id AND e.version = r.version"
            " WHERE r.id = ?",
            (key,),
        )
        sample.extend((key, name, row[0]) for row in blob)
    return sample


def _found(index: Index, collection: str, key: str, blob: bytes, dim: int) -> bool:
    hits = index.search(collection, from_blobs([blob], dim)[0], _NEAR)
    twins = len(hits) == _NEAR and hits[-1][1] > 1 - 1e-4  # more equal vectors than the answer has room for
    return twins or any(hit == key and cosine > 1 - 1e-3 for hit, cosine in hits)


def main(arguments: list[str]) -> int:
    """Probe and print the answer as JSON: the child's side of `probe`."""
    index_dir, database, model, dim = arguments
    journal = Journal(Path(database), read_only=True)
    wrong = look(Path(index_dir), journal, model=model, dim=int(dim))
    journal.close()
    sys.stdout.write(json.dumps({"wrong": wrong}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
