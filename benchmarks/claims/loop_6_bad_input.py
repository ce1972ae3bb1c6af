"""Claim loop_6: bad input. One clear sentence with the fix, a non-zero exit, and nothing lost.

Each case starts from a copy of a workspace that has learned, does what a user might do wrong (or what may happen to
one), and looks at what the command said, how it ended, whether every event is still there and the doctor finds
nothing, and whether the command works once the fault is mended. A damaged vector index is mended by the doctor itself.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.claim import Row, begin, exactly
from benchmarks.shell import MODEL, Ended, ModelServer, evolve, serving, settings
from memory.journal import Journal
from memory.locks import Owner
from memory.sqlite.sql import sqlite3

TASKS = 8
DISKS = (180, 320, 420, 520, 640, 760)
"""Sizes, in KiB, of the small disks that runs are made to fill."""
Mended = Callable[[], Ended]
Case = Callable[[Path], tuple[Ended, str, Mended | None]]
"""Does the wrong thing in a folder; returns how it ended, what the sentence must say, and how it goes on."""


@dataclass(frozen=True)
class Found:
    """What one case came to."""

    name: str
    sentence: bool
    nonzero: bool
    intact: bool
    goes_on: bool


def events(folder: Path) -> list[tuple[object, ...]]:
    """Return the journal as it stands on disk."""
    with closing(Journal(folder / ".evolve" / "evolve.db", read_only=True)) as journal:
        return journal.query("SELECT seq, type, subject, meta, content FROM events ORDER BY seq")


def healthy(folder: Path) -> bool:
    """Return whether the doctor finds nothing."""
    return evolve(folder, "memory", "doctor").out.strip() == "healthy"


def examine(name: str, original: Path, case: Case) -> Found:
    """Run one case on its own copy."""
    with tempfile.TemporaryDirectory(prefix="evolve-bad-") as scratch:
        folder = Path(shutil.copytree(original, Path(scratch) / "w"))
        before = events(folder)
        ended, said, mended = case(folder)
        intact = events(folder)[: len(before)] == before
        again = mended() if mended else evolve(folder, "run", "--limit", "2")
        found = Found(
            name=name,
            sentence=said in ended.sentence and len(ended.sentence) < 600,
            nonzero=ended.code not in (0, -11),
            intact=intact and healthy(folder),
            goes_on=again.code == 0,
        )
        print(f"{name}: exit {ended.code}: {ended.sentence or ended.err[-300:]}", flush=True)
        if not (found.sentence and found.nonzero and found.intact and found.goes_on):
            print(f"  NOT MET: {found}\n  expected {said!r}; then: {again.code} {again.err[-300:]}", flush=True)
        return found


def wrong_key(folder: Path) -> tuple[Ended, str, Mended | None]:
    text = (folder / "evolve.toml").read_text()
    (folder / "evolve.toml").write_text(text.replace("batch_size", "batch_sise"))
    ended = evolve(folder, "run")
    (folder / "evolve.toml").write_text(text)
    return ended, "did you mean 'batch_size'", None


def malformed_tasks(folder: Path) -> tuple[Ended, str, Mended | None]:
    (folder / "tasks.jsonl").write_text('{"instruction": "Pay Ann."}\n{"instruction": "Pay B')
    return evolve(folder, "run", "--tasks", "tasks.jsonl"), "tasks.jsonl:2: not JSON", None


def unknown_model(folder: Path) -> tuple[Ended, str, Mended | None]:
    with serving(ModelServer()) as server:
        settings(folder, tasks=TASKS, policy=server.settings.replace(MODEL, "worker-2"))
        ended = evolve(folder, "run")
    settings(folder, tasks=TASKS)
    return ended, f"does not serve 'worker-2'; did you mean '{MODEL}'", None


def no_key(folder: Path) -> tuple[Ended, str, Mended | None]:
    with serving(ModelServer(key="a-key")) as server:
        settings(folder, tasks=TASKS, policy=server.settings)
        ended = evolve(folder, "run")
    settings(folder, tasks=TASKS)
    return ended, "name its variable in api_key_env", None


def no_weights(folder: Path) -> tuple[Ended, str, Mended | None]:
    settings(folder, tasks=TASKS, policy=f'name = "local"\nmodel = "{folder}/no-such-model"')
    ended = evolve(folder, "run")
    settings(folder, tasks=TASKS)
    return ended, "no-such-model", None


def dead_server(folder: Path) -> tuple[Ended, str, Mended | None]:
    """The server dies in the middle of the run and comes back on the same port."""
    with serving(ModelServer(lives=12)) as server:
        settings(folder, tasks=TASKS, policy=server.settings)
        ended = evolve(folder, "run")

    def resumed() -> Ended:
        with serving(ModelServer(port=server.port)):
            return evolve(folder, "resume")

    return ended, "start the server", resumed


def owned(folder: Path) -> tuple[Ended, str, Mended | None]:
    owner = Owner(folder / ".evolve" / "index")
    owner.acquire()
    ended = evolve(folder, "run")
    owner.release()
    return ended, f"belongs to process {os.getpid()}", None


def busy(folder: Path) -> tuple[Ended, str, Mended | None]:
    """Another process keeps the database to itself for longer than a writer waits."""
    with closing(sqlite3.connect(folder / ".evolve" / "evolve.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ended = evolve(folder, "playbook", "add", "Be quick.")
    return ended, "Stop that process or try again", None


def damaged_index(folder: Path) -> tuple[Ended, str, Mended | None]:
    """Every file of the Chroma directory is noise. The doctor says so and makes the index again."""
    evolve(folder, "memory", "reindex")
    files = [path for path in (folder / ".evolve" / "index").rglob("*") if path.is_file()]
    for path in files:
        path.write_bytes(os.urandom(path.stat().st_size))
    doctor = evolve(folder, "memory", "doctor", "--json")
    (finding,) = doctor.json
    ended = Ended(doctor.code, "", f"error: {finding['message']}" if files else "")
    return ended, "nothing is lost, SQLite holds every vector", None


def no_database(folder: Path) -> tuple[Ended, str, Mended | None]:
    """Something else stands where the database was; it is not touched, and the right file is put back."""
    file = folder / ".evolve" / "evolve.db"
    kept = file.read_bytes()
    file.write_bytes(b"something else " * 400)
    ended = evolve(folder, "run")
    file.write_bytes(kept)
    return ended, "no evolve workspace", None


def full_disk(folder: Path, size: int) -> tuple[Ended, str, Mended | None]:
    """The workspace is on a disk that runs full; then on one that does not, where the run goes on."""
    with small_disk(folder, size) as (place, limit):
        ended = evolve(place, "run", preexec_fn=limit)
        for name in ("evolve.db", "evolve.db-wal", "checkpoints.db", "checkpoints.db-wal"):
            source = place / ".evolve" / name
            if source.exists() and place != folder:
                shutil.copyfile(source, folder / ".evolve" / name)
    started = bool(evolve(folder, "logs", "list", "--json").json[1:])
    return ended, "space", partial(evolve, folder, *(("resume",) if started else ("run", "--limit", "2")))


@contextmanager
def small_disk(folder: Path, size: int) -> Generator[tuple[Path, Callable[[], None] | None]]:
    """Yield a copy of the folder, on a disk with `size` KiB left: a tmpfs where that is allowed, else a file limit."""
    used = sum(path.stat().st_size for path in (folder / ".evolve").iterdir() if path.is_file())
    place = Path(tempfile.mkdtemp(prefix="evolve-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={used // 1024 + size}k", "tmpfs", str(place)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        try:
            shutil.copytree(folder, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("index", "runs"))
            yield place, None
        finally:
            subprocess.run(["umount", str(place)], check=True)
            place.rmdir()
    else:
        place.rmdir()
        largest = size * 1024
        yield folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))


def cases(quick: bool) -> dict[str, Case]:
    """Return the cases by name."""
    always: dict[str, Case] = {
        "wrong config key": wrong_key,
        "malformed task file": malformed_tasks,
        "unknown model": unknown_model,
        "no key": no_key,
        "model folder that is not there": no_weights,
        "server dies mid-run": dead_server,
        "workspace owned by another process": owned,
        "damaged Chroma directory": damaged_index,
        "database replaced by something else": no_database,
    }
    disks = {f"disk with {size} KiB left": partial(full_disk, size=size) for size in (DISKS[1:2] if quick else DISKS)}
    return always | disks | ({} if quick else {"database busy for 30 s": busy})


def main() -> None:
    """Measure and record."""
    claim = begin("loop_6_bad_input", __doc__)
    with tempfile.TemporaryDirectory(prefix="evolve-bad-") as scratch:
        original = settings(Path(scratch) / "learned", tasks=TASKS)
        first = evolve(original, "run")
        if first.code:
            raise SystemExit(f"the workspace could not be made: {first.err}")
        found = [examine(name, original, case) for name, case in cases(claim.quick).items()]
    n = len(found)
    rows = [
        Row("cases that end with one sentence naming the fix", sum(f.sentence for f in found), exactly(n), n=n),
        Row("cases with a non-zero exit", sum(f.nonzero for f in found), exactly(n), n=n),
        Row("cases that lose no event and leave a sound workspace", sum(f.intact for f in found), exactly(n), n=n),
        Row("cases in which work goes on once mended", sum(f.goes_on for f in found), exactly(n), n=n),
    ]
    claim.record(rows)
    raise SystemExit(0 if all(row.ok for row in rows) else 1)


if __name__ == "__main__":
    main()
