"""Claim inspect_2: the pages stay fast and small with 10,000 records, 1,000 runs and 100,000 steps.

The workspace is made through the journal. `evolve ui` then runs as a process of its own; each page is asked for several
times by HTTP, and timed there and back. Its memory is what the process holds after all of them. `--quick`: a tenth of
it, five times the time allowed.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np

from benchmarks.big_workspace import RUN, Size, build
from benchmarks.browser import inspector
from benchmarks.claim import Row, Target, at_least, at_most, begin, exactly
from benchmarks.office_arms import folder
from memory.journal import Journal

LISTS = {
    "Overview": "/",
    "Runs": "/runs",
    "Runs, last screen": "/runs?page={last_run}",
    "Run": f"/runs/{RUN.format(0)}",
    "Playbook": "/playbook",
    "Playbook, last screen": "/playbook?order=helpful&page={last_bullet}",
    "Playbook, searched": "/playbook?q=service7+value3",
    "Notebook": "/notebook",
    "Skills": "/skills",
    "Review": "/review",
    "Snapshots": "/snapshots",
    "Policies": "/policies",
    "Training": "/training",
}
OTHERS = {"Episode": "/episodes/tr-00000-0", "Prompt": "/prompt", "Retrieval": "/retrieval?q=send+item7+to+service7"}
LIMIT_MS, LIMIT_MB = 200.0, 300.0


def timed(client: httpx.Client, path: str, rounds: int) -> list[float]:
    """Return how long a page took, in ms, the first time first. Raises for anything but a page."""
    found: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        client.get(path, timeout=60).raise_for_status()
        found.append(1000 * (time.perf_counter() - began))
    return found


def resident(command: str) -> float:
    """Return the memory, in MB, of the process whose command line holds `command`."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if command in (process / "cmdline").read_text().replace("\0", " "):
                lines = (process / "status").read_text().splitlines()
                return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
        except OSError:
            continue
    raise RuntimeError(f"no process with {command!r} in its command line")


def steps_in(root: Path) -> int:
    """Return how many steps the episodes in the database hold."""
    question = "SELECT sum(json_array_length(c.body, '$.steps')) FROM trajectories t JOIN content c ON c.hash = t.hash"
    with closing(Journal(root / ".evolve" / "evolve.db", read_only=True)) as journal:
        return int(journal.query(question)[0][0])


def rows(root: Path, size: Size, rounds: int, slack: float) -> list[Row]:
    """Return the figures."""
    build(root, size)
    last = {"last_run": -(-size.runs // 25), "last_bullet": -(-size.records * 9 // 10 // 50)}
    found: list[Row] = []
    with inspector(root, "--read-only") as address, httpx.Client() as client:
        parts = urlsplit(address)
        client.base_url = f"{parts.scheme}://{parts.netloc}"
        client.get("/", params={"key": parts.query.partition("=")[2]}, follow_redirects=True)
        for name, path in (LISTS | OTHERS).items():
            times = timed(client, path.format(**last), rounds)
            target: Target | None = at_most(LIMIT_MS * slack) if name in LISTS else None
            found.append(Row(f"{name}, p95 ms", float(np.percentile(times, 95)), target, n=rounds))
            found.append(Row(f"{name}, median ms", float(np.median(times)), n=rounds))
        memory = resident(str(root / "evolve.toml"))
    return [
        Row("steps in the journal", steps_in(root), at_least(100_000) if slack == 1 else exactly(size.all_steps)),
        *found,
        Row("memory of the server, MB", memory, at_most(LIMIT_MB)),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("inspect_2_fast", __doc__)
    with folder() as root:
        size = Size(records=1_000, runs=100) if claim.quick else Size()
        claim.conclude(rows(root, size, 10 if claim.quick else 30, 5.0 if claim.quick else 1.0))


if __name__ == "__main__":
    main()
