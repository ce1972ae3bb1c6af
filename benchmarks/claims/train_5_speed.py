"""Claim train_5: a step of GRPO is at least 2.4 times as fast as TRL's, and no slower than our former trainer's.

All train a LoRA adapter (rank 16, fp32, one AdamW update of all rows a step) in office 640: the same tasks in the same
order, turns of at most 80 tokens, temperature 1, two threads. *pocket* does 8 tasks 8 times a step, in six turns;
SmolLM2-135M does 2 tasks 4 times, in two.

    TRL        An unmodified GRPOTrainer (1.16): `environment_factory`, generation by transformers, one batch for all
               episodes. These models make no tool calls, so its tokenizer reads a reply as a call of the tool `run`, in
               the model's own template; the reply that hands the task in ends the episode and is run where TRL asks for
               the reward. Gradient checkpointing, which TRL does by default, is off: it would be slower. All rows are
               trained on by both, those of groups without a signal too, which our `zero_variance` filter would save us.
    former     The same arm on the source that the audit read: what our own trainer was.
    journal    Steps of `evolve train grpo` in workspaces that hold 0, 5,000 and 20,000 episodes.

Arms run in turn, each in a process of its own; the first step of each is warm-up. Seconds are wall time, processor
seconds stand beside. A round is a cell, kept under its commit, so that a run may take several sittings. `--quick`:
small steps of pocket alone, 500 and 2,000 episodes; on a machine that others use its wall times say little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.claim import Row, at_least, at_most, begin
from benchmarks.findings import AUDITED, audited_tree
from benchmarks.real import models
from benchmarks.rl_speed import FORMER
from benchmarks.table import RESULTS, ROOT
from evolve.statistics.clusters import t_interval

Size = tuple[str, ...]
SIZES: dict[str, tuple[int, int, Size]] = {
    "pocket": (3, 6, ("--steps", "5", "--chains", "8", "--rollouts", "8")),
    "SmolLM2-135M": (2, 2, ("--steps", "3", "--chains", "2", "--rollouts", "4")),
}
"""For each model how many rounds, how many turns an episode has, and what a step is made of."""
QUICK: dict[str, tuple[int, int, Size]] = {"pocket": (2, 6, ("--steps", "3", "--chains", "4", "--rollouts", "4"))}
EPISODES, QUICK_EPISODES = ("0", "5000", "20000"), ("0", "500", "2000")
SMOLLM2 = "smollm2-135m-instruct"
CELLS = RESULTS / "cells" / "train_5"
Arms = dict[str, dict[str, Any]]


def told(*arguments: str, tree: Path = ROOT) -> Any:
    """Return what a Python process prints last, run in the source of `tree`.

    Raises `CalledProcessError` where it fails; its errors are shown.
    """
    own = {"OMP_NUM_THREADS": "2", "TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(tree)}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=tree, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | own
    )
    return json.loads(ended.stdout.splitlines()[-1])


def measured(name: str, turns: int, size: Size, number: int, former: Path) -> Arms:
    """Return what the three arms measured in one round of a model; their order changes with its number."""
    model = None if name == "pocket" else str(models.folder(SMOLLM2))
    chosen = [*(("--model", model) if model else ()), "--turns", str(turns)]
    own = json.dumps({"model": model, "turns": turns})
    arms = {
        "ours": lambda: told("-m", "benchmarks.rl_speed", "ours", *size, *chosen),
        "TRL": lambda: told("-m", "benchmarks.rl_speed", "trl", *size, *chosen),
        "former": lambda: told("-c", FORMER, own, "ours", *size, tree=former),
    }
    order = list(arms) if number % 2 == 0 else list(arms)[::-1]
    found = {arm: arms[arm]() for arm in order}
    print(
        f"{name}, round {number + 1}: { ({arm: round(rate(each), 2) for arm, each in found.items()}) } /s", flush=True
    )
    return found


def round_of(name: str, turns: int, size: Size, number: int, former: Path, cell: Path | None) -> Arms:
    """Return a round, measured where its cell does not hold it yet; None = it is kept nowhere."""
    if cell is None or not cell.exists():
        found = measured(name, turns, size, number, former)
        if cell is None:
            return found
        cell.parent.mkdir(parents=True, exist_ok=True)
        cell.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return json.loads(cell.read_text(encoding="utf-8"))


def rate(arm: dict[str, Any], times: str = "seconds") -> float:
    """Return episodes a second."""
    return arm["episodes"] * len(arm[times]) / sum(arm[times])


def compared(name: str, rounds: Sequence[Arms]) -> list[Row]:
    """Return the figures of a model: ours over TRL's and over the former trainer's, and each alone."""
    n, rows = len(rounds), list[Row]()
    for other, bound in (("TRL", at_least(2.4)), ("former", at_least(1.0))):
        what = f"{name}: samples/s of ours over {other}'s"
        faster, cheaper = (
            [rate(arms["ours"], times) / rate(arms[other], times) for arms in rounds]
            for times in ("seconds", "processor_s")
        )
        memory = [arms["ours"]["peak_mib"] / arms[other]["peak_mib"] for arms in rounds]
        rows += [
            Row(what, mean(faster), bound, n=n, ci=t_interval(faster), seed=0),
            Row(f"{what}, by processor seconds", mean(cheaper), n=n, ci=t_interval(cheaper), seed=0),
            Row(f"{name}: peak memory of ours over {other}'s", max(memory), at_most(1.0), n=n, seed=0),
        ]
    for arm in ("ours", "TRL", "former"):
        own = [arms[arm] for arms in rounds]
        rows += [
            Row(f"{name}, {arm}: samples/s", mean(map(rate, own)), n=n, seed=0),
            Row(f"{name}, {arm}: peak memory, MiB", max(each["peak_mib"] for each in own), n=n, seed=0),
            Row(f"{name}, {arm}: turns of an episode", mean(mean(each["turns"]) for each in own), n=n, seed=0),
            Row(f"{name}, {arm}: tokens of an episode", mean(mean(each["tokens"]) for each in own), n=n, seed=0),
        ]
    return rows


def flat(found: dict[str, tuple[list[float], list[float]]], sizes: Sequence[str]) -> list[Row]:
    """Return what a step costs in long journals, over a step in an empty one."""
    rows: list[Row] = []
    for size in sizes[1:]:
        processor, wall = (median(found[size][at]) / median(found[sizes[0]][at]) for at in (0, 1))
        n = len(found[size][0])
        name = f"a step with {int(size):,} episodes in the journal over one with none"
        rows += [
            Row(f"{name}, processor seconds", processor, at_most(1.2), n=n, seed=0),
            Row(f"{name}, wall", wall, n=n, seed=0),
        ]
    return rows


def main() -> None:
    """Measure and record."""
    claim = begin("train_5_speed", __doc__)
    episodes, steps = (QUICK_EPISODES, "4") if claim.quick else (EPISODES, "9")
    rows = flat(told("-m", "benchmarks.rl_journal", "--episodes", *episodes, "--steps", steps), episodes)
    with audited_tree(AUDITED) as former:
        for name, (count, turns, size) in (QUICK if claim.quick else SIZES).items():
            cells = [None if claim.quick else CELLS / f"{name}-{at}-{claim.commit[:8]}.json" for at in range(count)]
            rounds = [round_of(name, turns, size, at, former, cell) for at, cell in enumerate(cells)]
            rows += compared(name, rounds)
    claim.conclude(rows)


if __name__ == "__main__":
    main()
