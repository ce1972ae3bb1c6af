"""Claim rl_5: a step of GRPO is at least 1.5 times as fast as TRL's, in no more memory, however long the journal.

Both train a LoRA adapter (rank 16, fp32, one AdamW update of all rows a step) of the pocket model in office 640: the
same tasks in the same order, 8 tasks done 8 times a step, six turns of at most 80 tokens, temperature 1, two threads.
TRL 1.16's GRPOTrainer is unmodified: `environment_factory`, generation by transformers, one batch for all 64 episodes.
The pocket model writes code and no tool calls, so the tokenizer that TRL is given reads a reply as a call of the tool
`run`, in the model's own template; the reply that hands the task in ends the episode and is run where TRL asks for the
reward. Gradient checkpointing, which TRL does by default, is off: it would be slower. All rows are trained on by both,
those of groups without a signal too, which our `zero_variance` filter would save us.

Arms run in turn, each in a process of its own; the first step of each is warm-up. Seconds are wall time, processor
seconds stand beside. The journal: steps of `evolve train grpo` in workspaces that hold 0, 5,000 and 20,000 episodes.
`--quick`: two rounds of small steps, 500 and 2,000 episodes; on a machine that others use its wall times say little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from benchmarks.claim import Row, at_least, at_most, begin
from benchmarks.table import ROOT
from evolve.statistics.clusters import t_interval

ROUNDS, STEPS = 5, 7
FULL: tuple[str, ...] = ("--steps", str(STEPS), "--chains", "8", "--rollouts", "8")
QUICK: tuple[str, ...] = ("--steps", "3", "--chains", "4", "--rollouts", "4")
SIZES, QUICK_SIZES = ("0", "5000", "20000"), ("0", "500", "2000")


def told(*arguments: str) -> Any:
    """Return what a process prints last. Raises `CalledProcessError` where it fails; its errors are shown."""
    ended = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "2", "TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"},
    )
    return json.loads(ended.stdout.splitlines()[-1])


def rate(arm: dict[str, Any], times: str = "seconds") -> float:
    """Return episodes a second."""
    return arm["episodes"] * len(arm[times]) / sum(arm[times])


def compared(rounds: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> list[Row]:
    """Return the figures of ours and TRL's, a pair for each round."""
    n = len(rounds)
    faster = [rate(ours) / rate(trl) for ours, trl in rounds]
    cheaper = [rate(ours, "processor_s") / rate(trl, "processor_s") for ours, trl in rounds]
    memory = [ours["peak_mib"] / trl["peak_mib"] for ours, trl in rounds]
    rows = [
        Row("samples/s of our step over TRL's", mean(faster), at_least(1.5), n=n, ci=t_interval(faster), seed=0),
        Row("the same by processor seconds", mean(cheaper), n=n, ci=t_interval(cheaper), seed=0),
        Row("peak memory of our process over TRL's", max(memory), at_most(1.0), n=n, seed=0),
    ]
    for name, arms in zip(("ours", "TRL's"), zip(*rounds, strict=True), strict=True):
        rows += [
            Row(f"{name}: samples/s", mean(rate(arm) for arm in arms), n=n, seed=0),
            Row(f"{name}: peak memory, MiB", max(arm["peak_mib"] for arm in arms), n=n, seed=0),
            Row(f"{name}: turns of an episode", mean(mean(arm["turns"]) for arm in arms), n=n, seed=0),
            Row(f"{name}: tokens of an episode", mean(mean(arm["tokens"]) for arm in arms), n=n, seed=0),
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
    claim = begin("rl_5_speed", __doc__)
    rounds: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for number in range(2 if claim.quick else ROUNDS):
        order = ("ours", "trl") if number % 2 == 0 else ("trl", "ours")
        arms = {arm: told("benchmarks.rl_speed", arm, *(QUICK if claim.quick else FULL)) for arm in order}
        rounds.append((arms["ours"], arms["trl"]))
        print(f"round {number + 1}: ours {rate(arms['ours']):.2f}, TRL {rate(arms['trl']):.2f} samples/s", flush=True)
    sizes = QUICK_SIZES if claim.quick else SIZES
    steps = "4" if claim.quick else "9"
    found = told("benchmarks.rl_journal", "--episodes", *sizes, "--steps", steps)
    claim.conclude([*compared(rounds), *flat(found, sizes)])


if __name__ == "__main__":
    main()
