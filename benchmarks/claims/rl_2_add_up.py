"""Claim rl_2: memory and weights add up. The base, with its playbook, with weights trained from the journal, with both.

The offices, tasks and generations of claim `rl_7` (its cells are read, or made): weights are those after `sft` and
group rows from the journal of 300 online tasks. Both together must be better than either alone: the lower end of the
paired difference's interval over offices, of 97.5 %, since five of them were looked at before, is above 0. (It was -2
at first, which weights that learned nothing would reach; it was tightened after measuring.) `--quick`: one office, 60
tasks, the difference itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import mean

from benchmarks.claim import Row, Target, begin
from benchmarks.claims.loop_1_learns import spread
from benchmarks.from_logs import ARMS, LOOKS, OFFICES, QUICK, Found, measured

WEIGHTS = "groups"
OFF, ON = ARMS[:2]
SOLVED = {"base": ("parent", OFF), "+memory": ("parent", ON), "+RL": (WEIGHTS, OFF), "+both": (WEIGHTS, ON)}


def rows(found: Sequence[Found]) -> list[Row]:
    """Return the figures: means over offices, each with its 95 % interval."""

    def row(text: str, of: Callable[[Found], float], target: bool = False) -> Row:
        values = [of(each) for each in found]
        ci = spread(values, LOOKS) if len(values) > 1 else None
        low = ci[0] if ci else values[0]
        asked = Target("lower end > 0", lambda _: low > 0) if target else None
        return Row(text, mean(values), asked, n=len(values), ci=ci, seed=0)

    def solved(name: str) -> Callable[[Found], float]:
        generation, arm = SOLVED[name]
        return lambda each: each.solved[generation][arm]

    def beside(other: str) -> Callable[[Found], float]:
        return lambda each: solved("+both")(each) - solved(other)(each)

    return [
        *[row(f"+both minus {other}, points", beside(other), target=True) for other in ("+memory", "+RL")],
        *[row(f"{name}, % of tasks solved", solved(name)) for name in SOLVED],
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("rl_2_add_up", __doc__)
    offices = QUICK if claim.quick else OFFICES
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        found = list(pool.map(partial(measured, claim.quick), offices))
    claim.conclude(rows(found))


if __name__ == "__main__":
    main()
