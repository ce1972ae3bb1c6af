"""Faults of a training besides a kill: a full disk, a gradient that is no number, a world whose server dies.

Each case starts from a copy of one workspace, asks `evolve train run` for a training, and looks at what it said, how
it ended, whether the live policy is what it was, and whether the same command ends as an undisturbed training once the
fault is mended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.shell import Ended
from benchmarks.train_kills import Straight, candidates, copied, difference, registry_faults, twice
from benchmarks.train_lives import DEPLOYMENT, POISON, command, settings, training_folder
from evolve.generations.workspace_registry import FOLDER
from evolve.training import ledger

DISKS = (0.02, 0.2, 0.5, 0.8, 0.95)
"""Room on small disks, as shares of what an undisturbed training leaves on its own."""
METHOD = "run"
TRAIN = f"train {METHOD}"
Case = Callable[[Path], tuple[Ended, str, Ended]]
"""Lets a training meet a fault; returns how it ended, what the sentence must say, and how it ended once mended."""


@dataclass(frozen=True)
class Found:
    """What one case came to."""

    name: str
    sentence: bool
    nonzero: bool
    untouched: bool
    """The same generation is live with the same files, and nothing was published."""
    as_undisturbed: bool
    """Mended, the same command ends in the weights, history and figures of an undisturbed training."""


def examine(name: str, original: Path, root: Path, straight: Straight, case: Case) -> Found:
    """Run one case on its own copy."""
    folder = copied(original, root)
    ended, said, again = case(folder)
    place = training_folder(folder, METHOD)
    wrong = [*_after(folder), *registry_faults(folder), *(twice(place, METHOD) if place else ["no training"])]
    late = difference(folder, METHOD, straight) + ([] if candidates(folder) == 1 else ["not one candidate"])
    found = Found(
        name=name,
        sentence=said in ended.sentence and len(ended.sentence) < 600,
        nonzero=ended.code not in (0, -11),
        untouched=not wrong,
        as_undisturbed=again.code == 0 and not late,
    )
    print(f"{name}: exit {ended.code}: {ended.sentence or ended.err[-600:]}", flush=True)
    if not (found.sentence and found.nonzero and found.untouched and found.as_undisturbed):
        print(f"  NOT MET: {found}\n  {wrong} {late}; then: {again.code} {again.err[-600:]}", flush=True)
    shutil.rmtree(folder)
    return found


def _noted(folder: Path) -> None:
    """Note what is wrong right after the fault, before it is mended."""
    wrong = registry_faults(folder) + [f"{candidates(folder)} candidates"] * (candidates(folder) > 0)
    (folder / "wrong.txt").write_text("\n".join(wrong))


def _after(folder: Path) -> list[str]:
    return (folder / "wrong.txt").read_text().splitlines()


def no_number(folder: Path) -> tuple[Ended, str, Ended]:
    """From the second batch on, advantages are no numbers."""
    settings(folder, advantages="poisoned")
    (folder / POISON).touch()
    ended = command(folder, TRAIN)
    _noted(folder)
    (folder / POISON).unlink()
    return ended, "lower learning_rate, or look at the rewards", command(folder, TRAIN)


def dead_server(folder: Path) -> tuple[Ended, str, Ended]:
    """The server behind the office dies in the second batch of rollouts, and comes back on the same port."""
    with serving(lives=5) as port:
        own = f'name = "benchmarks.train_lives:Remote"\ndeployment = {DEPLOYMENT}\nurl = "http://127.0.0.1:{port}"'
        settings(folder, environment=own)
        ended = command(folder, TRAIN)
    _noted(folder)
    with serving(port=port):
        return ended, "start it again", command(folder, TRAIN)


def full_disk(folder: Path, share: float, whole: int) -> tuple[Ended, str, Ended]:
    """The folder of trainings is on a disk with a share of the `whole` bytes left; then the disk grows."""
    place = folder / ".evolve" / FOLDER / ledger.FOLDER
    with small_disk(place, int(share * whole)) as (grow, largest):
        ended = command(folder, TRAIN, largest)
        _noted(folder)
        grow()
        again = command(folder, TRAIN)
    return ended, "space", again


@contextmanager
def small_disk(place: Path, room: int) -> Generator[tuple[Callable[[], object], int | None]]:
    """Put a folder on a disk with `room` bytes left, a tmpfs; give what makes it large. Where that is not allowed, give
    the largest size of a file instead. Afterwards the folder holds what was on the disk.
    """
    kept = Path(shutil.copytree(place, place.with_name("kept")))
    used = sum(-(-path.stat().st_size // 4096) * 4096 for path in kept.rglob("*")) + 4096
    mount = ["mount", "-t", "tmpfs", "-o", f"size={used + room}", "tmpfs", str(place)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        try:
            shutil.copytree(kept, place, dirs_exist_ok=True)
            grow = ["mount", "-o", "remount,size=64m", str(place)]
            yield partial(subprocess.run, grow, check=True), None
            shutil.copytree(place, kept, dirs_exist_ok=True)
        finally:
            subprocess.run(["umount", str(place)], check=True)
        shutil.copytree(kept, place, dirs_exist_ok=True)
    else:
        yield (lambda: None), room
    shutil.rmtree(kept)


@contextmanager
def serving(lives: int = 1 << 30, port: int = 0) -> Generator[int]:
    """Answer so many requests on loopback, then none; give the port."""
    left = iter(range(lives))
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with lock:
                alive = next(left, None) is not None
            if alive:
                self.send_response(204)
                self.end_headers()
            else:
                self.close_connection = True  # and no answer

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    web = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    try:
        yield web.server_address[1]
    finally:
        web.shutdown()
        web.server_close()
        thread.join()


def cases(straight: Straight, quick: bool) -> dict[str, Case]:
    """Return the cases by name."""
    some = DISKS[1:2] if quick else DISKS
    disk = partial(full_disk, whole=straight.size)
    disks = {f"disk with {share:.0%} of the room": partial(disk, share=share) for share in some}
    return {"gradient that is no number": no_number, "server of the world dies mid-rollout": dead_server, **disks}
