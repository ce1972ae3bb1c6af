"""Makes `office_69e46c8.tar.xz` and `pocket_69e46c8.tar.xz`: workspaces that commit 69e46c8 wrote, and what it said.

    git worktree add --detach build/69e46c8 69e46c8
    python tests/golden/make_old_workspaces.py build/69e46c8

Run once, by that commit's own code; later versions must open the results, never make them again.

office    The scripted worker learned from 16 tasks under gate `held_out`, was evaluated, and took part in a comparison.
pocket    The pocket model learned bullets and skills from four of six tasks; its run was killed (SIGKILL) in the next.

In each archive, beside evolve.toml and .evolve, `said.json` is what the commands of that commit printed with `--json`.
Left out are the vector index, which is made anew from the journal, and pictures.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMIT = "69e46c8"
OFFICE = """\
# An office whose scripted worker learns without a model.
[run]
tasks = 16

[policy]
name = "evolve.environments.office.worker:worker"
model = "3"

[environment]
name = "office"
deployment = 3
max_steps = 16

[memory]
index = "exact"
mmr_lambda = 0.7         # as it always was

[playbook]
reflector = "rules"
curator = "direct"

[notebook]
batch = 8

[gate]
names = ["static", "held_out"]
select_tasks = 12        # of the split dev
first_stage = 12
max_chars = 1500
calls_ratio = 8.0

[forget]
unused = 400
"""
POCKET = """\
[run]
tasks = 6
concurrency = 1

[policy]
name = "pocket"

[environment]
name = "office"
deployment = 0

[skills]
enabled = true           # functions that worked are kept, and later tasks call them
evidence = 5

[gate]
names = ["static", "online_ab"]
hide = 0.1
"""
EPISODES = 6
"""So many, one of them without memory, are done when the second batch has begun."""


def evolve(tree: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command of that commit in a folder."""
    environ = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "evolve.cli.main", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environ, text=True, stdout=subprocess.PIPE)


def said(tree: Path, folder: Path, *arguments: str) -> Any:
    """Return what a command printed with `--json`. Raises `RuntimeError` when it failed."""
    process = evolve(tree, folder, *arguments, "--json")
    out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"evolve {' '.join(arguments)} ended with code {process.returncode}; see above")
    return json.loads(out)


def office(tree: Path, folder: Path) -> dict[str, Any]:
    """Learn, evaluate, compare."""
    (folder / "evolve.toml").write_text(OFFICE)
    learned = said(tree, folder, "run")
    said(tree, folder, "eval", "--limit", "6")
    compared = said(tree, folder, "compare", "default", "none", "--limit", "4", "--report-tasks", "4", "--no-controls")
    return {
        "playbook": said(tree, folder, "playbook", "list"),
        "report": said(tree, folder, "report", learned["run_id"]),
        "compared": compared,
    }


def pocket(tree: Path, folder: Path) -> dict[str, Any]:
    """Learn, and be killed; what is known then is asked of a copy, since closing the journal would tidy it up."""
    (folder / "evolve.toml").write_text(POCKET)
    run = evolve(tree, folder, "run")
    while episodes(folder) < EPISODES:
        if run.poll() is not None:
            raise RuntimeError(f"the run ended with code {run.returncode} before it was killed")
        time.sleep(0.02)
    run.kill()
    run.communicate()
    copy = shutil.copytree(folder, folder.with_name("copy"))
    return {"playbook": said(tree, copy, "playbook", "list"), "report": said(tree, copy, "report")}


def episodes(folder: Path) -> int:
    """Return how many episodes a journal holds."""
    address = f"file:{folder}/.evolve/evolve.db?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as journal:
            return journal.execute("SELECT count(*) FROM trajectories").fetchone()[0]
    except sqlite3.OperationalError:  # it is not there yet
        return 0


def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return what of a file is packed: nobody's name, and nothing that is made anew."""
    name = Path(member.name)
    if name.name.startswith("index") or name.suffix == ".png" or name.name.endswith("-shm"):
        return None
    return member.replace(uid=0, gid=0, uname="", gname="", deep=False)


def main() -> None:
    """Make both archives with the source of the worktree that is named."""
    tree = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix=f"evolve-{COMMIT}-") as scratch:
        for make in (office, pocket):
            folder = Path(scratch, make.__name__)
            folder.mkdir()
            (folder / "said.json").write_text(json.dumps(make(tree, folder), indent=1), encoding="utf-8")
            with tarfile.open(HERE / f"{make.__name__}_{COMMIT}.tar.xz", "w:xz") as archive:
                for name in ("evolve.toml", "said.json", ".evolve"):
                    archive.add(folder / name, name, filter=kept)


if __name__ == "__main__":
    main()
