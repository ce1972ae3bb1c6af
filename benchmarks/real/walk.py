"""Let a real model learn a benchmark, from the command line alone, as its user would.

    python -m benchmarks.real.walk [FOLDER]        build/real/walk, where no folder is named

Qwen2.5-Coder-0.5B-Instruct, served by llama.cpp, works through 60 questions of ACE's Formula and keeps what it solved
as exemplars; then 40 held-out questions with what was learned, and without. The folder stays: look at it with
`evolve ui`. Called again, it goes on where it was stopped; in an empty folder it begins anew.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.real.files import data
from benchmarks.real.lives import served
from benchmarks.real.models import fetch, find
from benchmarks.table import ROOT
from evolve.config.file import FILE, load_config
from evolve.config.model import Config
from evolve.loop.assembly import DATABASE, open_store
from evolve.loop.runs import DONE, LEARN, RunRecord
from memory.errors import BadInput, EvolveError

MODEL = "qwen2.5-coder-0.5b-instruct"
TRAIN, HELD_OUT = 60, 40
TOML = """\
# of python -m benchmarks.real.walk
[run]
tasks = {train}
concurrency = 4
batch_size = 12
attempts = 3             # a failed question is tried twice more: one that is solved then is an exemplar too

[policy]
name = "openai"
base_url = "{url}"
model = "{model}"
max_tokens = 320

[environment]
name = "formula"
train = '{questions}'
validation = '{validation}'

[playbook]
reflector = "none"       # a model of this size learns from solved questions, not from rules

[exemplars]
enabled = true

[gate]
names = ["default"]
calls_advance = 120

[controls]
no_memory = 0.0          # the control is the evaluation without memory
"""


def walk(folder: Path, train: int = TRAIN, held_out: int = HELD_OUT) -> None:
    """Fetch and serve the model, write the configuration, and run the commands. Raises `EvolveError`."""
    begun = (folder / FILE).exists() and (folder / FILE).read_text().startswith(TOML.partition("\n")[0])
    if folder.exists() and any(folder.iterdir()) and not begun:
        raise BadInput(f"{str(folder)!r} is not empty, and no walk was begun there; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    files = {"questions": data("formula_train_subset_500.jsonl"), "validation": data("formula_val_subset_300.jsonl")}
    exam = ("eval", "--limit", str(held_out))
    print(f"model: {fetch(find(MODEL))}", flush=True)
    with served(MODEL) as url:
        (folder / FILE).write_text(TOML.format(url=url, model=MODEL, train=train, **files))
        learning = learning_left(load_config(folder / FILE))
        for command in (*learning, ("report",), ("exemplars", "list"), exam, (*exam, "--no-memory")):
            print(f"\n$ evolve {' '.join(command)}", flush=True)
            called(command, folder)


def learning_left(config: Config) -> tuple[tuple[str, ...], ...]:
    """Return the command that begins the learning of a workspace or goes on with it; none where it is done."""
    if not (config.workspace / DATABASE).exists():
        return (("run",),)
    with open_store(config, read_only=True) as store:
        runs = [record for each in store.runs() if (record := RunRecord.model_validate(each)).kind == LEARN]
    if not runs:
        return (("run",),)
    return () if runs[-1].status == DONE else (("resume", runs[-1].run_id),)


def called(command: Sequence[str], folder: Path) -> None:
    """Run a command of ours. Raises `BadInput` where it fails."""
    done = subprocess.run([sys.executable, "-m", "evolve.cli.main", *command], cwd=folder, check=False)
    if done.returncode:
        raise BadInput(
            f"`evolve {' '.join(command)}` ended with status {done.returncode}; what it said stands above. Called "
            "again, the walk goes on from there"
        )


def main(arguments: Sequence[str]) -> int:
    """Walk in the folder named, or in `build/real/walk`; return the exit status."""
    try:
        walk(Path(arguments[0]) if arguments else Path(ROOT) / "build" / "real" / "walk")
    except EvolveError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
