"""Claim train_6: the gate refuses weights that forget another world of the workspace, and lets harmless ones pass.

Five workspaces. In each the agent works in one office and then in another, with the rules of each in a namespace of its
own. Two candidates are trained on what the agent did in the second office: one on it alone and without its playbook
(`evolve train internalise`), which teaches it to overlook rules that are shown; and one more gently, at half the rate,
with the playbook and without, that learns its successes in the first office again (`train.replay`). Pairs of offices
and seeds differ. Each candidate goes before the gate, greedily, on 72 held-out tasks of each office. Control: the
verdict of the same trial by the tasks of the second office alone, as the gate was before. `--quick`: one workspace. A
workspace that was measured is kept in `benchmarks/results/cells/train_6`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

import torch

from benchmarks.claim import Row, Target, at_least, begin, exactly, git
from benchmarks.claims.loop_1_learns import spread
from benchmarks.memo import MemoPolicy
from benchmarks.office_arms import folder, office, write_rules
from benchmarks.table import RESULTS
from evolve.config.file import changed
from evolve.config.model import Config
from evolve.config.training import recipe_settings
from evolve.loop.session import Parts, run
from evolve.training.promotion_gate import WITH, WITHOUT, Acting, GenerationTrial, decided, in_process, judged
from evolve.training.training_session import train_from_logs
from memory.records import Frozen
from policies.generations.generation_records import Generation

CELLS = RESULTS / "cells" / "train_6"
WORKSPACES = 5
FIRST, SECOND = 550, 540
"""The offices of workspace 0; the others follow."""
TASKS = 30
"""Train tasks in each office."""
PASSES, BATCH = 1, 4
ARMS: dict[str, dict[str, object]] = {
    "forgets": {"train.replay": False, "train.learning_rate": 2e-3, "train.sft.context": "dropped"},
    "replays": {"train.replay": True, "train.learning_rate": 1e-3, "train.sft.context": "both"},
}
FORGETS, REPLAYS = ARMS


class Tried(Frozen):
    """What became of one candidate."""

    accepted: bool
    reason: str
    before: bool
    """Whether the tasks of the second office alone would accept it."""
    home: float
    """Points gained there, without the playbook."""
    older: float
    """Points gained in the first office."""
    forgot: bool
    """Whether the tasks of the first office refuse it, whatever is named first."""
    sees: float
    """Chance that a loss of 10 points there is seen."""
    obeyed: int
    """Safety canaries that it did and live did not."""
    seconds: float
    """Of the gate."""


class Cell(Frozen):
    """What came of one workspace."""

    commit: str
    tried: dict[str, Tried]


def config_of(root: Path, deployment: int, namespace: str, seed: int) -> Config:
    """Return the configuration of an office."""
    return Config.model_validate(
        {
            "root": root,
            "run": {"tasks": TASKS, "concurrency": 64, "seed": seed},
            "policy": {"name": "pocket", "max_tokens": 120},
            "environment": {"name": "office", "deployment": deployment, "max_steps": 8},
            "memory": {"index": "exact", "recall_k": 40, "namespace": namespace},
            "playbook": {"reflector": "none"},
            "gate": {"names": ["static"]},
            "controls": {"no_memory": 0},
        }
    )


def measure(number: int) -> Cell:
    """Work in both offices, train both candidates and let the gate judge them."""
    with folder() as root:
        first = config_of(root, FIRST + number, "first", number)
        second = config_of(root, SECOND + number, "second", number)
        for config in (first, second):
            write_rules(config, office(config.environment.options["deployment"]).oracle, len)
            run(config)
        live = MemoPolicy.pocket()  # both candidates are measured beside it, and it answers each prompt once

        @contextmanager
        def side(config: Config, generation: Generation) -> Generator[Acting]:
            if generation.adapter is None:
                yield config, Parts(policy=live)
                return
            with in_process(config, generation) as acting:
                yield acting

        tried: dict[str, Tried] = {}
        for arm, own in ARMS.items():
            settings = {**own, "train.sft.passes": PASSES, "train.sft.batch": BATCH}
            config = changed(second, recipe_settings("sft") | settings)
            made = train_from_logs(config, "sft").generation
            began = time.perf_counter()
            trial = judged(config, made, side)
            tried[arm] = figures(trial, time.perf_counter() - began)
            print(f"workspace {number}, {arm}: {tried[arm]}", flush=True)
        asyncio.run(live.aclose())
        return Cell(commit=git("rev-parse", "HEAD"), tried=tried)


def figures(trial: GenerationTrial, seconds: float) -> Tried:
    """Return what a trial says, and what its home tasks alone would have said."""
    (older,) = trial.older.values()
    rows = {row["measured"]: row for row in trial.rows()}
    before, _ = decided({name: trial.arms[name] for name in (WITH, WITHOUT)})
    return Tried(
        accepted=trial.accepted,
        reason=trial.reason,
        before=before,
        home=100 * trial.arms[WITHOUT].delta,
        older=100 * older.delta,
        forgot="forgets" in decided({}, trial.older)[1],
        sees=next(row["sees_10"] for row in rows.values() if row["sees_10"] is not None),
        obeyed=len(trial.obeyed),
        seconds=seconds,
    )


def measured(quick: bool, number: int) -> Cell:
    """Return the figures of a workspace: read, where they were measured before, else made and kept."""
    kept = CELLS / f"{number}.json"
    if not quick and kept.exists():
        return Cell.model_validate_json(kept.read_text())
    cell = measure(number)
    if not quick:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(cell.model_dump_json(indent=1) + "\n")
    return cell


def rows(cells: Sequence[Cell]) -> list[Row]:
    """Return the figures."""
    n = len(cells)

    def found(arm: str, of: Callable[[Tried], float]) -> list[float]:
        return [of(cell.tried[arm]) for cell in cells]

    def counted(text: str, arm: str, of: Callable[[Tried], bool], target: Target | None = None) -> Row:
        return Row(text, sum(found(arm, of)), target, n=n, seed=0)

    def points(text: str, arm: str, of: Callable[[Tried], float]) -> Row:
        values = found(arm, of)
        return Row(text, mean(values), n=n, ci=spread(values) if n > 1 else None, seed=0)

    most = n - (n >= WORKSPACES)
    return [
        counted("trained on one office alone: refused by the gate", FORGETS, lambda t: not t.accepted, exactly(n)),
        counted("of them refused by the tasks of the other office", FORGETS, lambda t: t.forgot, exactly(n)),
        counted("control: accepted by the tasks of that office alone", FORGETS, lambda t: t.before, at_least(most)),
        counted("with the other office replayed: accepted by the gate", REPLAYS, lambda t: t.accepted, at_least(most)),
        counted("control: accepted by the tasks of one office alone", REPLAYS, lambda t: t.before),
        points("trained on one office alone: points in the other", FORGETS, lambda t: t.older),
        points("with the other office replayed: points in it", REPLAYS, lambda t: t.older),
        points("trained on one office alone: points there, playbook off", FORGETS, lambda t: t.home),
        points("with the other replayed: points there, playbook off", REPLAYS, lambda t: t.home),
        points("with the other replayed: chance that -10 points are seen", REPLAYS, lambda t: t.sees),
        points("safety canaries obeyed: trained on one office alone", FORGETS, lambda t: t.obeyed),
        points("safety canaries obeyed: with the other replayed", REPLAYS, lambda t: t.obeyed),
        points("seconds of a gate", REPLAYS, lambda t: t.seconds),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("train_6_forgets", __doc__)
    torch.set_num_threads(1)
    claim.conclude(rows([measured(claim.quick, number) for number in range(1 if claim.quick else WORKSPACES)]))


if __name__ == "__main__":
    main()
