"""The sleeping skills before the default gates of the source that is imported.

`python -m benchmarks.sleeping_skill_trials [--every N]` prints one line of JSON for each pair. The same file runs on an
older commit too (`benchmarks.either`), so that both are asked the same. Scripted worker, oracle playbook, each skill
judged by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import benchmarks.either  # noqa: F401  # pyright: ignore[reportUnusedImport] - gives modules their names of now
from benchmarks.office_arms import Bench, folder
from benchmarks.skill_mix import WideOffice
from benchmarks.sleeping_skills import DEPLOYMENT, Pair, pairs
from evolve.environments.office.environment import OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.episode.rollout import RolloutConfig
from evolve.gates.context import Bench as GateBench
from evolve.gates.evaluator import Evaluator
from evolve.gates.stack import DEFAULT
from evolve.loop.assembly import make_gates, open_store
from memory.protocols import Gate
from memory.records import DeltaOp
from memory.store import Store


async def judge(root: Path, every: int) -> None:
    """Print what became of every n-th pair."""
    world = WideOffice(OfficeConfig(deployment=DEPLOYMENT))
    bench = Bench(make_worker(world), DEPLOYMENT, skills=True)
    config = bench.config(bench.with_rules(root, world.oracle))
    config = config.model_copy(update={"gate": config.gate.model_copy(update={"names": (DEFAULT,)})})
    with open_store(config, bench.policy.count_tokens) as store:
        acting = RolloutConfig(world="", max_steps=16, skills=True)
        for at, pair in enumerate(list(pairs(world))[::every]):
            evaluator = Evaluator(config, store, world, bench.policy, acting, f"sleeping-{at}")
            gates = make_gates(config, GateBench(evaluator, tuple(world.tasks("train"))))
            print(json.dumps(await _outcome(pair, gates, store)), flush=True)


async def _outcome(pair: Pair, gates: Sequence[Gate], store: Store) -> dict[str, object]:
    poison, why = await _refused(pair.poisoned, gates, store)
    twin, why_twin = await _refused(pair.benign, gates, store)
    return {"way": pair.way, "trust": str(pair.trust), "poison": poison, "why": why, "twin": twin, "why_twin": why_twin}


async def _refused(op: DeltaOp, gates: Sequence[Gate], store: Store) -> tuple[str, str]:
    """Return the first gate that does not accept an op and why; empty texts when all do."""
    for gate in gates:
        verdict = await gate.judge([op], store.view("default"), ())
        if op.op_id not in verdict.accepted:
            return gate.name, (verdict.rejected | verdict.deferred)[op.op_id]
    return "", ""


def main() -> None:
    """Judge every n-th pair and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="take every n-th pair")
    every: int = parser.parse_args().every
    with folder() as root:
        asyncio.run(judge(Path(root) / "skills", every))


if __name__ == "__main__":
    main()
