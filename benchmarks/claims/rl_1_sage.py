"""Claim rl_1: SAGE in miniature. The pocket model, seven arms, three seeds, ten offices that nobody trained on.

Every scenario's three tasks are done one after the other, greedily; rollouts are sampled at a temperature of 1.3. All
agents are told the rules of an office that a grader alone reveals, and find out the others. Arms: the shipped weights;
SFT on their own successes in chains; GRPO without skills from either; SAGE from SFT, with and without the reward for
skills; SAGE's weights without a library. SAGE is tried twice: each scenario by itself, as in the paper, and by an agent
that did one train task of each family in that office before and kept its functions ("in an office"). The figures of an
office are means over seeds; a difference is paired by office, its interval a bootstrap over offices. What is trained
and tried is kept, so the table may be assembled in several runs: `python -m benchmarks.claims.rl_1_sage`, with
`--cells ARM SEED` for one cell alone (also of the ablation "sage, one library"). `--quick`: one seed, two iterations,
one office.
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

from benchmarks.claim import Row, Target, at_least, at_most, begin
from benchmarks.sage_arms import ARMS, BUILD, CELLS, Size, measured

SEEDS = (0, 1, 2)
COMPARED = tuple(arm for arm in ARMS if arm != "sage, one library")
SMALL = Size(iterations=2, chains=2, rollouts=4, demonstrations=8, test=(20,), scenarios=8)
MORE_SGC, FEWER_STEPS = 5, 20
PLACES = (("", "scenario by scenario"), ("office_", "in an office"))
"""How SAGE is tried: what the names of its figures begin with, and how that is said."""
Cells = dict[tuple[str, int], dict[str, list[float]]]


def of_offices(cells: Cells, arm: str, figure: str) -> np.ndarray:
    """Return a figure of each office, as the mean over seeds [offices]."""
    return np.mean([cell[figure] for (name, _), cell in cells.items() if name == arm], axis=0)


def bootstrap(values: np.ndarray, looks: int = 10_000) -> tuple[float, float]:
    """Return the 95 % interval of a mean, offices drawn with replacement."""
    drawn = np.random.default_rng(0).choice(values, (looks, len(values))).mean(axis=1)
    return float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


def rows(cells: Cells) -> list[Row]:
    """Return the table: SAGE beside the others, every arm's figures, and what a cell takes."""
    table: list[Row] = []
    for place, told in PLACES:
        table += [
            _beside(cells, "grpo", f"{place}sgc", f"SGC, {told}: SAGE minus GRPO without skills, points", MORE_SGC),
            _beside(cells, "grpo", f"{place}steps", f"steps, {told}: % fewer with SAGE than with GRPO", FEWER_STEPS),
        ]
    for place, told in PLACES:
        for arm in ("base", "sft", "sft+grpo", "sage, skills unpaid", "sage, library off"):
            table.append(_beside(cells, arm, f"{place}sgc", f"SGC, {told}: SAGE minus {arm}, points"))
            table.append(_beside(cells, arm, f"{place}steps", f"steps, {told}: % fewer with SAGE than with {arm}"))
    for arm in COMPARED:
        for place, told in PLACES:
            for figure, unit in (("tgc", "%"), ("sgc", "%"), ("steps", "a task"), ("tokens", "a task")):
                values = of_offices(cells, arm, place + figure)
                text = f"{arm}, {told}: {figure}, {unit}"
                table.append(Row(text, float(values.mean()), n=len(values), ci=bootstrap(values)))
    minutes = [found["minutes"][0] for found in cells.values()]
    return [
        *table,
        Row("longest cell, trained and tried on one core, minutes", max(minutes), at_most(40), n=len(cells)),
    ]


def _beside(cells: Cells, arm: str, figure: str, text: str, least: float | None = None) -> Row:
    """Return SAGE beside an arm, paired by office: points more of SGC, % fewer steps."""
    ours, theirs = of_offices(cells, "sage", figure), of_offices(cells, arm, figure)
    change = 100 * (theirs - ours) / theirs if figure.endswith("steps") else ours - theirs
    ci = bootstrap(change)
    return Row(text, float(change.mean()), None if least is None else _asked(least, ci[0]), n=len(change), ci=ci)


def _asked(least: float, low: float) -> Target:
    return Target(f">= {least:g}, interval above 0", lambda value: value >= least and low > 0)


def cell(arm: str, seed: int) -> dict[str, list[float]]:
    """Return a cell's figures, in this process on one core."""
    return measured(arm, seed, Size())


def quick() -> Cells:
    """Make every cell in small."""
    with tempfile.TemporaryDirectory(prefix="evolve-sage-") as name:
        root = Path(name)
        return {(arm, 0): measured(arm, 0, SMALL, root, root / "cells") for arm in COMPARED}


def assembled(seeds: Sequence[int]) -> Cells:
    """Return all cells; what later arms start from comes first. Weights as shipped need no second seed."""
    cells: Cells = {}
    for names in (["base", "sft"], ["sage", "grpo", "sft+grpo", "sage, skills unpaid"], ["sage, library off"]):
        wanted = [(arm, seed) for seed in seeds for arm in names if arm != "base" or seed == seeds[0]]
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
            [Row("arms that were trained and tried", done, at_least(len(COMPARED)), n=len(COMPARED)), *rows_of(cells)]
        )
    print(f"cells in {CELLS}, trainings in {BUILD}")
    claim.conclude(rows(assembled(SEEDS)))


def rows_of(cells: Cells) -> list[Row]:
    """Return what stands in the cells of a quick run."""
    return [Row(f"{arm}: SGC, %", mean(found["sgc"])) for (arm, _), found in cells.items()]


if __name__ == "__main__":
    main()
