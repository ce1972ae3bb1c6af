"""Claim train_4: two processes train what one trains, each holding half of the model; a kill costs a batch at most.

A tiny random Llama on CPUs (gloo); what computes is torch's FSDP2, on GPUs as here. No GPU is part of it. Three parts.

    same      LoRA with a schedule, full weights in several updates a batch, and logits in parts with a correction and
              gradient checkpointing: one process and two. Controls: gradients averaged, as FSDP does by itself; a
              process alone, which holds everything.
    killed    The follower, then the leader is killed (SIGKILL) before the last batch; the same call goes on.
    command   `torchrun --nproc-per-node 2 --no-python evolve train sft` and `sage` on the pocket model, and both again
              in one process. Control: the adapter that the other recipe trained.

`--quick` leaves `command` out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.claim import Row, at_least, at_most, begin, exactly
from benchmarks.office_arms import folder
from benchmarks.ranked import (
    BATCHES,
    CASES,
    CONTROL,
    Case,
    Seen,
    all_trained,
    farthest,
    launched,
    led,
    seen,
    tiny,
    trained,
)
from benchmarks.table import ROOT
from evolve.training import ledger
from policies.rl.protocols import Array, Episodes

NEAR = 1e-4
BOUND_S = 60.0
FIGURES = ("loss", "entropy", "rollout_kl", "gradient_norm", "learning_rate")
SETTINGS = """\
[run]
tasks = 4

[policy]
name = "pocket"
max_tokens = 80

[environment]
name = "office"
deployment = 600
max_steps = 6

[memory]
index = "exact"

[train]
rank = 4
iterations = 2
chains = 1
rollouts = 2
filter = "everything"
learning_rate = 1e-3
schedule = "linear"

[train.sft]
passes = 2
batch = 2
"""


def main() -> None:
    """Measure and record."""
    claim = begin("train_4_two_processes", __doc__)
    with folder() as root:
        model = tiny(root)
        rows = same(model, root / "same") + killed(model, root / "killed")
        if not claim.quick:
            rows += command(root / "command")
    claim.conclude(rows)


def more(episodes: Episodes) -> Array:
    """Return an advantage for whatever was done, so that each batch changes the weights."""
    return episodes.spread(episodes.rewards * 0 + 1)


def apart(one: Seen, other: Seen, *names: str) -> float:
    """Return the largest difference of figures of two trainings, batch by batch."""
    pairs = list(zip(one.figures, other.figures, strict=True))
    return max(abs(a[name] - b[name]) for a, b in pairs for name in names)


def same(model: Path, root: Path) -> list[Row]:
    """Return how far two processes are from one, and what each of them did."""
    ended = launched(all_trained, model, (*CASES, CONTROL), root)
    rows = [Row("same: processes that ended with an error", sum(code != 0 for code in ended.codes), exactly(0), n=2)]
    for case in CASES:
        rows += of_case(case, trained(model, case), seen(root, case, 0), seen(root, case, 1))
    alone, both = trained(model, CONTROL), seen(root, CONTROL, 0)
    norm, weight = apart(alone, both, "gradient_norm"), farthest(alone.weights, both.weights)
    return [
        *rows,
        Row("control: gradients averaged: largest difference of their norm", norm, at_least(NEAR), n=BATCHES),
        Row("control: gradients averaged: largest difference of a weight", weight, at_least(NEAR)),
    ]


def of_case(case: Case, alone: Seen, first: Seen, second: Seen) -> list[Row]:
    """Return the rows of one training."""
    wanted, found, own = (Counter(packs) for packs in (alone.packs, first.packs + second.packs, second.packs))
    strays, n = (wanted - found) + (found - wanted), len(alone.packs)
    most = max(first.held, second.held) / alone.held
    return [
        Row(f"{case.name}: largest difference of a figure", apart(alone, first, *FIGURES), at_most(NEAR), n=BATCHES),
        Row(f"{case.name}: largest difference of a weight", farthest(alone.weights, first.weights), at_most(NEAR)),
        Row(f"{case.name}: packs that no process computed, or both", strays.total(), exactly(0), n=n),
        Row(f"{case.name}: packs of the second process", own.total(), at_least(n / 4), n=n),
        Row(f"{case.name}: largest share of the model that a process holds", most, at_most(0.55), n=2),
        Row(f"{case.name}: control: share that one process holds", share(alone, first, second), exactly(1)),
    ]


def share(alone: Seen, first: Seen, second: Seen) -> float:
    """Return which share of what two processes hold together is held by one that is alone."""
    return alone.held / (first.held + second.held)


def killed(model: Path, root: Path) -> list[Row]:
    """Return how trainings end of which a process is killed, and what they come to when they go on."""
    whole, rows = trained(model, CASES[0]).weights, list[Row]()
    for name, victim in (("follower", 1), ("leader", 0)):
        own = root / name
        own.mkdir(parents=True)
        ended = launched(led, model, own, BATCHES - 1, victim, log=own / "said")
        before, said = checkpointed(own), (own / f"said-{1 - victim}").read_text()
        again = launched(led, model, own, None, victim)
        repeated = BATCHES - 1 - int((own / "begun").read_text())
        rows += [
            Row(f"{name} killed: batches done again", repeated, exactly(0), n=BATCHES - 1),
            Row(f"{name} killed: seconds until both had ended", ended.seconds, at_most(BOUND_S)),
            Row(f"{name} killed: the other ends with an error", ended.codes[1 - victim], exactly(1)),
            Row(f"{name} killed: it says why, and what goes on", said.count("the same command goes on"), exactly(1)),
            Row(f"{name} killed: processes that fail when they go on", sum(map(bool, again.codes)), exactly(0), n=2),
            Row(
                f"{name} killed: largest difference of a weight from one process, undisturbed",
                farthest(whole, torch.load(own / "weights.pt", weights_only=True)),
                at_most(NEAR),
            ),
            Row(
                f"{name} killed: control: what the weights lacked when it was killed",
                farthest(before, checkpointed(own)),
                at_least(NEAR),
            ),
        ]
    return rows


def checkpointed(own: Path) -> dict[str, Any]:
    """Return the trained weights of the last checkpoint."""
    return torch.load(own / "checkpoint.pt", weights_only=True)["trained"]


def command(root: Path) -> list[Row]:
    """Return what the commands make in one process and in two."""
    two, one = root / "two", root / "one"
    two.mkdir(parents=True)
    (two / "evolve.toml").write_text(SETTINGS)
    done(two, EVOLVE, "run")
    shutil.copytree(two, one)
    rows, made = list[Row](), list[dict[str, Any]]()
    more = ("--set", "train.advantages=benchmarks.claims.train_4_two_processes:more")  # a recipe has its own
    for recipe, keys in (("sft", ()), ("sage", more)):
        said = [done(place, start, "train", recipe, *keys) for place, start in ((one, EVOLVE), (two, TORCHRUN))]
        places = [next((place / ".evolve/policies/training").glob(f"{recipe}-*")) for place in (one, two)]
        adapters = [load_file(place / "adapter" / "adapter_model.safetensors") for place in places]
        histories = [ledger.lines(place / ledger.HISTORY) for place in places]
        made.append(adapters[1])
        candidates = said[1].count("is a candidate")
        rows += [
            Row(f"train {recipe}: largest difference of a weight", farthest(*adapters), at_most(NEAR)),
            Row(f"train {recipe}: batches that are not of the same episodes", differ(*histories), exactly(0), n=2),
            Row(f"train {recipe}: candidates that two processes tell of", candidates, exactly(1)),
        ]
    return [*rows, Row("train: control: difference of a weight of sft and sage", farthest(*made), at_least(NEAR))]


def differ(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> int:
    """Return how many lines of two histories differ."""
    return sum(a != b for a, b in zip_longest(one, other))


EVOLVE = (sys.executable, "-m", "evolve")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "evolve")


def done(place: Path, start: Sequence[str], *verb: str) -> str:
    """Run a command of ours in a folder and return what it printed. Raises where it fails."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    made = subprocess.run([*start, *verb], cwd=place, env=environment, capture_output=True, text=True, timeout=900)
    if made.returncode:
        raise RuntimeError(f"{' '.join(verb)} ended with {made.returncode}: {made.stderr[-2000:]}")
    return made.stdout


if __name__ == "__main__":
    main()
