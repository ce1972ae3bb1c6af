"""Claim rl_7: the journal alone makes a better policy. Ten offices, 300 online tasks each; held-out tasks; no rollout.

In each office the agent works through its train tasks from nothing, under the default gates. `evolve train sft` then
trains on its successes as they were, and as if no playbook had been shown; the gate compares the candidate with its
parent on tasks of their own, and what it accepts is promoted. Then group rows are trained on, from there. Measured on
153 held-out tasks of the same office with the playbook and without, and on an office that nobody trained on, without
anything and with its rules written by hand. Parent and child do the same tasks, greedily: a gain is a paired difference
of an office, its interval is over offices: of 97.5 %, since five of them were looked at before. `evolve cycle` then
does three rounds in an office of its own, and is killed (SIGKILL) at random times. `--quick`: one office, 60 tasks,
one round.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from statistics import mean

from benchmarks.claim import Row, Target, at_least, begin, exactly
from benchmarks.claims.loop_1_learns import spread
from benchmarks.from_logs import ARMS, LOOKS, OFFICES, QUICK, RATE, Found, measured
from benchmarks.office_arms import folder
from evolve.config.model import Config, PolicySection
from evolve.gates.stack import DEFAULT
from evolve.loop.assembly import open_store

CYCLE, EVERY, ROUNDS, KILLS = 505, 48, 3, 4


@dataclass(frozen=True)
class Cycled:
    """What came of a cycle that was killed."""

    rounds: int
    repeated: int
    """Tasks that two rounds did."""
    kills: int
    promoted: int


def cycled(rounds: int, kills: int) -> Cycled:
    """Let `evolve cycle` do its rounds, and kill it at random times."""
    rng = random.Random(0)
    with folder() as root:
        settings = (
            f'[run]\nconcurrency = 64\n[policy]\nname = "pocket"\nmax_tokens = 120\n[gate]\nnames = ["{DEFAULT}"]\n'
            f'[memory]\nindex = "exact"\nrecall_k = 40\n[environment]\nname = "office"\nmax_steps = 16\n'
            f"deployment = {CYCLE}\ntrain_tasks = {EVERY * ROUNDS}\n[train]\nlearning_rate = {RATE}\n"
        )
        (root / "evolve.toml").write_text(settings)
        command = [sys.executable, "-m", "evolve.cli.main", "--config", str(root / "evolve.toml"), "cycle"]
        command += ["--every", str(EVERY), "--rounds", str(rounds), "--json"]
        killed = 0
        while True:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            try:
                out, _ = process.communicate(timeout=rng.uniform(10, 60) if killed < kills else None)
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed += 1
        if process.returncode:
            raise RuntimeError(f"the cycle ended with exit code {process.returncode}: {out}")
        done = json.loads(out)
        config = Config(root=root, policy=PolicySection(name="pocket"))
        with open_store(config, len, read_only=True) as store:
            tasks = [t.task.id for each in done for t in store.trajectories(run_id=each["run_id"], arm="main")]
        return Cycled(
            rounds=sum(bool(each["live"]) for each in done),
            repeated=len(tasks) - len(set(tasks)),
            kills=killed,
            promoted=sum(bool(each["accepted"]) for each in done),
        )


def rows(found: Sequence[Found], cycle: Cycled, quick: bool) -> list[Row]:
    """Return the figures: means over offices, each with its 95 % interval."""

    def row(text: str, of: Callable[[Found], float], target: Callable[[Sequence[float]], Target] | None = None) -> Row:
        values = [of(each) for each in found]
        ci = spread(values, LOOKS) if len(values) > 1 else None
        return Row(text, mean(values), target(values) if target else None, n=len(values), ci=ci, seed=0)

    def gained(values: Sequence[float]) -> Target:
        interval = spread(values, LOOKS) if len(values) > 1 else None
        return Target("interval above 0", lambda value: (interval[0] if interval else value) > 0)

    own = ARMS[:2]
    return [
        *[row(f"sft, {arm}: points gained", partial(Found.gain, arm=arm), None if quick else gained) for arm in own],
        row("candidates that the gate accepted, %", lambda f: 100 * f.accepted, lambda _: at_least(100)),
        *[row(f"sft, {arm}: points gained", partial(Found.gain, arm=arm)) for arm in ARMS[2:]],
        *[row(f"then groups, {arm}: points gained", partial(Found.gain, arm=arm, child="groups")) for arm in ARMS],
        *[row(f"parent, {arm}, % solved", lambda f, arm=arm: f.solved["parent"][arm]) for arm in ARMS],
        row(
            "sft without the playbook minus parent with it, points",
            lambda f: f.solved["sft"][own[0]] - f.solved["parent"][own[1]],
        ),
        row("tokens of the playbook in a prompt, which that would save", lambda f: f.playbook_tokens),
        row("seconds of training on successes", lambda f: f.seconds),
        Row("rounds of the cycle that were completed", cycle.rounds, exactly(1 if quick else ROUNDS), n=1),
        Row("tasks that two rounds did", cycle.repeated, exactly(0), n=cycle.kills),
        Row("kills that the cycle survived", cycle.kills, n=cycle.kills),
        Row("rounds after which a generation was promoted", cycle.promoted, n=cycle.rounds),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("rl_7_from_logs", __doc__)
    found: list[Found] = []
    deployments = QUICK if claim.quick else OFFICES
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for at, each in zip(deployments, pool.map(partial(measured, claim.quick), deployments), strict=True):
            found.append(each)
            told = "  ".join(f"{name} {[round(value) for value in of.values()]}" for name, of in each.solved.items())
            print(f"office {at}: {told}  gate: {each.reason}", flush=True)
    cycle = cycled(1, 1) if claim.quick else cycled(ROUNDS, KILLS)
    claim.conclude(rows(found, cycle, claim.quick))


if __name__ == "__main__":
    main()
