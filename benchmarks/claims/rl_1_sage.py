"""Claim rl_1: SAGE in miniature. The pocket model, seven arms, three seeds, ten offices that nobody trained on.

Every scenario's three tasks are done one after the other; nothing learned as text is shown. Arms: the shipped weights;
SFT on their own successes in chains; GRPO without skills from either; SAGE from SFT, with and without the reward for
skills; SAGE's weights without a library. Figures of one office are means over seeds; a difference is paired by office,
its interval a bootstrap over offices. Trainings and cells are kept and go on where they stopped, so the table may be
assembled in several runs: `python -m benchmarks.claims.rl_1_sage`, with `--cells ARM SEED` for one cell alone.
`--quick`: one seed, two iterations, one office.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.claim import Row, Target, at_least, begin
from benchmarks.sage_arms import ARMS, BUILD, CELLS, Size, measured

SEEDS = (0, 1, 2)
SMALL = Size(iterations=2, chains=2, rollouts=4, demonstrations=8, test=(20,), scenarios=8)
MORE_SGC, FEWER_STEPS = 5, 20
Cells = dict[tuple[str, int], dict[str, list[float]]]


def of_offices(cells: Cells, arm: str, figure: str) -> np.ndarray:
    """Return a figure of each office, as the mean over seeds [offices]."""
    return np.mean([cell[figure] for (name, _), cell in cells.items() if name == arm], axis=0)


def bootstrap(values: np.ndarray, looks: int = 10_000) -> tuple[float, float]:
    """Return the 95 % interval of a mean, offices drawn with replacement."""
    drawn = np.random.default_rng(0).choice(values, (looks, len(values))).mean(axis=1)
    return float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


def rows(cells: Cells) -> list[Row]:
    """Return the table: every arm's figures, and SAGE beside the others."""
    count = len(cells) // len(ARMS)

    def against(arm: str, figure: str, text: str, least: float | None = None, sign: int = 1) -> Row:
        ours, theirs = of_offices(cells, "sage", figure), of_offices(cells, arm, figure)
        change = sign * (ours - theirs) if sign > 0 else 100 * (theirs - ours) / theirs
        ci = bootstrap(change)
        target = None if least is None else _asked(least, ci[0])
        return Row(text, float(change.mean()), target, n=len(change), ci=ci, seed=count)

    table = [
        against("grpo", "sgc", "SGC: SAGE minus GRPO without skills, points", MORE_SGC),
        against("grpo", "steps", "steps: % fewer with SAGE than with GRPO", FEWER_STEPS, -1),
    ]
    for arm in ("base", "sft", "sft+grpo", "sage, skills unpaid", "sage, library off"):
        table.append(against(arm, "sgc", f"SGC: SAGE minus {arm}, points"))
        table.append(against(arm, "steps", f"steps: % fewer with SAGE than with {arm}", None, -1))
    for arm in ARMS:
        for figure, unit in (("tgc", "%"), ("sgc", "%"), ("steps", "a task"), ("tokens", "a task")):
            values = of_offices(cells, arm, figure)
            table.append(Row(f"{arm}: {figure}, {unit}", float(values.mean()), n=len(values), ci=bootstrap(values)))
    minutes = [cell["training_seconds"][0] / 60 for cell in cells.values()]
    return [*table, Row("longest training of a cell, minutes", max(minutes), n=len(minutes))]


def _asked(least: float, low: float) -> Target:
    return Target(f">= {least:g}, interval above 0", lambda value: value >= least and low > 0)


def cell(arm: str, seed: int) -> dict[str, list[float]]:
    """Return a cell's figures, in this process on one core."""
    return measured(arm, seed, Size())


def quick() -> Cells:
    """Make every cell in small."""
    with tempfile.TemporaryDirectory(prefix="evolve-sage-") as name:
        root = Path(name)
        return {(arm, 0): measured(arm, 0, SMALL, root, root / "cells") for arm in ARMS}


def assembled(seeds: Sequence[int]) -> Cells:
    """Return all cells; what later arms start from comes first."""
    cells: Cells = {}
    for names in (["base", "sft"], ["grpo", "sft+grpo", "sage", "sage, skills unpaid"], ["sage, library off"]):
        wanted = [(arm, seed) for arm in names for seed in seeds]
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
            for key, found in zip(wanted, pool.map(cell, *zip(*wanted, strict=True)), strict=True):
                cells[key] = found
                told = "  ".join(f"{figure} {mean(values):.3g}" for figure, values in found.items())
                print(f"{key[0]}, seed {key[1]}: {told}", flush=True)
    return cells


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a cell has no figures."""
    if sys.argv[1:2] == ["--cells"]:
        print(cell(sys.argv[2], int(sys.argv[3])))
        return
    claim = begin("rl_1_sage", __doc__)
    if claim.quick:
        cells = quick()
        done = sum(bool(found["sgc"]) for found in cells.values())
        claim.conclude(
            [Row("arms that were trained and tried", done, at_least(len(ARMS)), n=len(ARMS)), *rows_of(cells)]
        )
    print(f"cells in {CELLS}, trainings in {BUILD}")
    claim.conclude(rows(assembled(SEEDS)))


def rows_of(cells: Cells) -> list[Row]:
    """Return what stands in the cells of a quick run."""
    return [Row(f"{arm}: SGC, %", mean(found["sgc"])) for (arm, _), found in cells.items()]


if __name__ == "__main__":
    main()
