"""Claim gates_1: the figures of claim loop_1 hold again when every lesson passes the default gates first.

Ten unseen offices, 60 online tasks, pocket in all roles; one column admits what the static gate lets through, the other
what the default stack measured. Both are judged frozen on the same held-out tasks.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from benchmarks.claim import Row, at_least, begin
from benchmarks.claims.loop_1_learns import DEPLOYMENTS, QUICK, Results, alone, closed
from benchmarks.office_arms import CONTROL, Bench, Tally, folder, steps, tokens
from evolve.gates.stack import DEFAULT

COLUMNS = {"learned": ("static",), "gated": (DEFAULT,)}


def measure(bench: Bench) -> tuple[dict[str, Tally], float]:
    """Learn both columns, judge them beside no memory and the oracle; return also the gates' calls / the stream's."""
    ratio = 0.0
    with folder() as root:
        arms = {"cold": bench.evaluate(root / "cold", memory=False)}
        arms["control_cold"] = bench.evaluate(root / "cold", memory=False, splits=CONTROL)
        arms["oracle"] = bench.evaluate(bench.with_rules(root / "oracle", bench.office.oracle))
        for name, gates in COLUMNS.items():
            spent = bench.learn(root / name, gates=gates)
            ratio = max(ratio, bench.gate_calls(root / name, spent))
            arms[name] = bench.evaluate(root / name)
            arms[f"control_{name}"] = bench.evaluate(root / name, splits=CONTROL)
    return arms, ratio


def rows(results: Results, ratios: list[float]) -> list[Row]:
    """Return the figures, each for both columns; the targets are those of loop_1."""
    found: list[Row] = []
    for name in COLUMNS:
        worst = min(100 * closed(arms, name) for arms in results.arms.values())
        found += [
            results.closed(name, at_least(80)),
            Row(f"gap closed: {name}, % (worst deployment)", worst, at_least(60), n=len(results.arms), seed=0),
            results.by_class("silent", name),
            results.points(f"control family: {name} minus cold", f"control_{name}", "control_cold"),
            *results.less("steps", steps, name),
            *results.less("generated tokens", tokens, name),
        ]
    found += [results.points(f"{name}, % of all test tasks", name) for name in ("cold", *COLUMNS, "oracle")]
    found.append(results.points("gated minus learned, points", "gated", "learned"))
    return [*found, Row("calls of gates / of the stream, worst", max(ratios), n=len(ratios), seed=0)]


def main() -> None:
    """Measure and record."""
    claim = begin("gates_1_loop", __doc__)
    deployments = QUICK if claim.quick else DEPLOYMENTS
    results: dict[int, dict[str, Tally]] = {}
    ratios: list[float] = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for deployment, (arms, ratio) in zip(
            deployments, pool.map(partial(alone, measure, claim.quick), deployments), strict=True
        ):
            results[deployment] = arms
            ratios.append(ratio)
            shown = "  ".join(f"{name} {100 * tally.rate:.0f}" for name, tally in arms.items())
            print(f"deployment {deployment}: {shown}  gates {ratio:.2f}", flush=True)
    claim.record(rows(Results(results), ratios))


if __name__ == "__main__":
    main()
