"""Claim train_1: weights learn. A pocket model with noisy weights, GRPO and SAGE, three seeds, ten offices of nobody.

What is claimed is the weights' share: each training is compared with the weights that it began from at the same setting
of the library. Control: GRPO where it is drawn by lot who gets which reward of a group, with all else equal (the real
model's had half as many updates), so that what updates do by themselves is seen: they do harm, so that to be better
than it is no target. Beside it stand the shares of the library (base with it minus without) and of the
reward for skills (SAGE minus SAGE whose skills are unpaid). Every scenario's three tasks are done one after the other,
greedily and sampled at a temperature of 1. All agents are told the rules of an office that a grader alone reveals, and
find out the others. The figures of an office are means over seeds; a difference is paired by office, its interval a
bootstrap over offices. A real model's rows are read from what a GPU measured (`make gpu`), paired by question.

What is trained and tried is kept, so the table may be assembled in several runs:
`python -m benchmarks.claims.train_1_learns`, with `--cells ARM SEED` for one cell alone. `--quick`: shipped weights,
one seed, one iteration, one office.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.claim import Row, Target, at_least, begin
from benchmarks.formula_arms import FORMULA, GREEDY, GRPO, SAGE, SAMPLED, SHUFFLED, START
from benchmarks.sage_arms import ARMS, BUILD, CELLS, MODES, Places, Size, measured
from benchmarks.table import RESULTS
from benchmarks.weak_pocket import weak_pocket
from policies.local.local_policy import POCKET

SEEDS = (0, 1, 2)
SMALL = Size(iterations=1, chains=2, rollouts=2, test=(20,), scenarios=4)
LEARN = (("grpo", "base, library off", "library off"), ("sage", "base", "library on"))
"""A training, the weights that it began from as they are tried, and how both are tried."""
ABOVE = Target("interval above 0", lambda low: low > 0)
MODEL = "Qwen 0.5 B"
"""Qwen2.5-Coder-0.5B-Instruct, as `GPU.real` of `benchmarks.gpu` names it."""
PAIRS = ((GRPO, START, True), (GRPO, SHUFFLED, False), (SHUFFLED, START, False), (SAGE, START, False))
"""Arms of the real model that are compared, and whether the first has to be better."""
Cells = dict[tuple[str, int], dict[str, list[float]]]


def of_offices(cells: Cells, arm: str, figure: str) -> np.ndarray:
    """Return a figure of each office, as the mean over seeds [offices]."""
    return np.mean([cell[figure] for (name, _), cell in cells.items() if name == arm], axis=0)


def bootstrap(values: np.ndarray, looks: int = 10_000) -> tuple[float, float]:
    """Return the 95 % interval of a mean, offices drawn with replacement."""
    drawn = np.random.default_rng(0).choice(values, (looks, len(values))).mean(axis=1)
    return float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


def minus(cells: Cells, arm: str, other: str, figure: str, text: str, *, asked: bool = False) -> Row:
    """Return an arm minus another, paired by office."""
    change = of_offices(cells, arm, figure) - of_offices(cells, other, figure)
    return paired(change, f"{text}: {arm} minus {other}", asked=asked)


def paired(change: np.ndarray, text: str, *, asked: bool) -> Row:
    """Return the row of a mean of paired differences; where it is asked for, all of its interval has to be above 0."""
    ci = bootstrap(change)
    target = Target(ABOVE.text, lambda _: ABOVE.met(ci[0])) if asked else None
    return Row(text, float(change.mean()), target, n=len(change), ci=ci)


def rows(cells: Cells) -> list[Row]:
    """Return the table: what weights learned, its control, the shares of library and skill reward, and every arm."""
    table: list[Row] = []
    for mode in MODES:
        for arm, base, setting in LEARN:
            for figure in ("tgc", "sgc"):
                text = f"{mode} {figure.upper()}, {setting}, points"
                table.append(minus(cells, arm, base, f"{mode} {figure}", text, asked=figure == "tgc"))
            own = [mean(cells[arm, seed][f"{mode} tgc"]) - mean(cells[base, 0][f"{mode} tgc"]) for seed in seeds(cells)]
            table.append(Row(f"{mode} TGC, {setting}, points: {arm} minus {base}, the least of the seeds", min(own)))
    for mode in MODES:
        text = f"control: {mode} TGC, points"
        table.append(minus(cells, "grpo", "grpo, rewards shuffled", f"{mode} tgc", text))
        table.append(minus(cells, "grpo, rewards shuffled", "base, library off", f"{mode} tgc", text))
    for mode in MODES:
        for figure, unit in (("tgc", "points"), ("steps", "a task")):
            name = f"{mode} {figure}"
            table.append(minus(cells, "sage", "sage, skills unpaid", name, f"the skill reward's share: {name}, {unit}"))
            table.append(minus(cells, "base", "base, library off", name, f"the library's share: {name}, {unit}"))
    for arm in ARMS:
        for mode in MODES:
            for figure, unit in (("tgc", "%"), ("sgc", "%"), ("steps", "a task"), ("tokens", "a task")):
                values = of_offices(cells, arm, f"{mode} {figure}")
                text = f"{arm}, {mode}: {figure}, {unit}"
                table.append(Row(text, float(values.mean()), n=len(values), ci=bootstrap(values)))
    longest = max(found["minutes"][0] for found in cells.values())
    return [*table, Row("longest cell, trained and tried on one core, minutes", longest, n=len(cells))]


def seeds(cells: Cells) -> list[int]:
    """Return the seeds of the arms that are trained."""
    return sorted({seed for arm, seed in cells if arm == "grpo"})


def cell(arm: str, seed: int) -> dict[str, list[float]]:
    """Return a cell's figures, in this process on one core."""
    return measured(arm, seed, Size(), Places(weak_pocket()))


def quick() -> Cells:
    """Make every cell in small."""
    with tempfile.TemporaryDirectory(prefix="evolve-sage-") as name:
        root = Path(name)
        places = Places(POCKET, root / "build", root / "cells")
        return {(arm, 0): measured(arm, 0, SMALL, places) for arm in ARMS}


def assembled() -> Cells:
    """Return all cells. Weights as they are need no second seed."""
    cells: Cells = {}
    weak_pocket()
    wanted = [(arm, seed) for seed in SEEDS for arm in ARMS if ARMS[arm].training or seed == SEEDS[0]]
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
    claim = begin("train_1_learns", __doc__)
    if claim.quick:
        cells = quick()
        done = sum(bool(found["greedy sgc"]) for found in cells.values())
        claim.conclude(
            [
                Row("arms that were trained and tried", done, at_least(len(ARMS)), n=len(ARMS)),
                *(Row(row.claim, row.measured, n=row.n, ci=row.ci) for row in rows(cells)),
            ]
        )
    print(f"cells in {CELLS}, trainings in {BUILD}")
    claim.conclude([*rows(assembled()), *real()])


def real() -> list[Row]:
    """Return what a real model learned on Formula, as a GPU measured it (`benchmarks.gpu`), paired by question."""
    files = sorted((RESULTS / "gpu").glob(f"*/{FORMULA}"))
    if not files:
        return [Row("a real model on a benchmark of others, points: a training minus its start", None, ABOVE, n=0)]
    table: list[Row] = []
    for file in files:
        found = json.loads(file.read_text())
        for way in (GREEDY, SAMPLED):
            for arm, other, asked in PAIRS:
                if {arm, other} <= set(found):
                    change = 100 * np.subtract(found[arm][way], found[other][way])
                    text = f"{MODEL} on Formula, {file.parent.name}, {way}, points: {arm} minus {other}"
                    table.append(paired(change, text, asked=asked))
        for arm, own in found.items():
            rates = ", ".join(f"{way} {100 * mean(own[way]):.1f} %" for way in (GREEDY, SAMPLED))
            table.append(Row(f"{MODEL}, {arm} ({rates}): updates", own["updates"], n=len(own["batches"])))
    return table


if __name__ == "__main__":
    main()
