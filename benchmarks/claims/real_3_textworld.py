"""Claim real_3: what a model of half a billion parameters did in some cooking games helps it in others.

Qwen2.5-Coder-0.5B-Instruct (from its Q4_K_M file, in bfloat16), served by vLLM's CPU build on this machine, plays
TextWorld's cooking games: one room, one ingredient, the commands that make sense are listed, at most 15 a game. 40
games of the train seeds online: what it won becomes an exemplar, and what it lost is shown as TextWorld itself wins it
(`exemplars.gold`), since by itself it won none of 100 (docs/LOG.md). Exemplars show each observation whole
(`exemplars.observation_chars`): with their middles left out it scored and won nothing. Then, frozen, 20 games of other
seeds with foods that no train game has. A score is the share of a game's points.
Gate `static` alone: games are too slow for gates that play them. Controls of the same run: without memory, with memory
once more (A/A; it acts greedily), with a memory that learned nothing. Beside it, commands that are drawn by
lot from those that are listed, and the train games that it won as they came, in halves.

The replies are recorded (`benchmarks/data/replies/`), and the life kept under `build/real/`: killed, or on another day
and machine, the same command goes on. It needs TextWorld (docs/guides/environments.md), the weights (`make
real-models`) and vLLM (`scripts/install_vllm_cpu.sh`). With `--quick` 2 and 2 games.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.claim import Row, begin
from benchmarks.real.arms import Arms, controls, folder, lived, recorded_rows, recording
from benchmarks.real.figures import difference, gain, mean, more_than
from benchmarks.real.lives import BF16, HELD_OUT, Life, Printed, served_bf16
from benchmarks.table import ROOT
from evolve.environments.textworld import LISTED, TextWorld, TextWorldConfig
from evolve.episode.arms import AA, MAIN, NO_MEMORY
from evolve.protocols import Action
from memory.records import Task

MODEL = "qwen2.5-coder-0.5b-instruct"
TRAIN, TESTED, QUICK = 40, 20, 2
STEPS, CONTEXT, GAMES = 15, 16384, 20
SEED, TIMES = 0, 5
ENVIRONMENT: dict[str, Any] = {
    "name": "textworld",
    "cache": str(Path(ROOT) / "build" / "real" / "textworld"),
    "ingredients": 1,
    "cook": False,
    "cut": False,
    "commands": True,
    "max_steps": STEPS,
}
LEARNING: dict[str, dict[str, Any]] = {
    "policy": {"max_tokens": 32, "temperature": 0.0},
    "run": {"batch_size": 10},
    "exemplars": {"enabled": True, "k": 2, "token_budget": 4000, "observation_chars": 4000, "gold": True},
    "playbook": {"reflector": "none", "curator": "direct", "token_budget": 4600},
    "gate": {"names": ["static"]},
    "controls": {"no_memory": 0.0},
}


def at_random(config: TextWorldConfig) -> dict[str, float]:
    """Return the score of each held-out game when its commands are drawn by lot, as a mean of several times."""
    world = TextWorld(config)
    return {
        task.id: sum(asyncio.run(_drawn(world, task, seed)) for seed in range(TIMES)) / TIMES
        for task in world.tasks(HELD_OUT)
    }


async def _drawn(world: TextWorld, task: Task, seed: int) -> float:
    episode, lot = world.start(task), Random(f"{task.id}-{seed}")
    try:
        said, done, left = await episode.opening(), False, STEPS
        while left and not done:
            listed = said.partition(f"{LISTED}\n")[2].splitlines()
            result = await episode.step(Action(text=lot.choice(listed)))
            said, done, left = result.observation, result.done, left - 1
        return (await episode.grade()).reward
    finally:
        await episode.close()


def rows(arms: Arms, drawn: Mapping[str, float]) -> list[Row]:
    """Return the figures of the life, beside those of commands that were drawn by lot."""
    off, on, again = (arms.scores[arm] for arm in (NO_MEMORY, MAIN, AA))
    n, better = len(on), gain("learned minus without memory, points of the score", off, on, SEED)
    beside = gain("learned minus commands drawn by lot, points of the score", drawn, on, SEED)
    assert better.ci is not None
    assert beside.ci is not None
    return [
        Row("without memory, mean score, %", mean(off), n=n, seed=SEED),
        Row("learned, mean score, %", mean(on), n=n, seed=SEED),
        Row("commands drawn by lot, mean score, %", mean(drawn), n=n * TIMES, seed=SEED),
        better,
        Row("the same: lower end of the interval", better.ci[0], n=n, seed=SEED),
        beside,
        Row("learned minus drawn by lot: lower end of the interval", beside.ci[0], more_than(0), n=n, seed=SEED),
        gain("learned again minus learned (A/A), points of the score", on, again, SEED),
        difference("learned minus without memory, points of games won", arms.off, arms.on, seed=SEED),
        *controls(arms, SEED),
        Row("changes applied", arms.learned, seed=SEED),
    ]


def main() -> None:
    """Serve, live, record."""
    run = begin("real_3_textworld", __doc__)
    train, held_out = (QUICK, QUICK) if run.quick else (TRAIN, TESTED)
    environment = {**ENVIRONMENT, "train": train, "test": held_out, "dev": 0}
    recorded = recording(run)
    with served_bf16(MODEL, context=CONTEXT) as url:
        life = Life(folder(run), url, MODEL + BF16, environment, LEARNING, (Printed("life"),), recorded, GAMES)
        arms = lived(life, train, held_out, bare=False)
    games = {key: value for key, value in environment.items() if key in TextWorldConfig.model_fields}
    drawn = at_random(TextWorldConfig.model_validate(games))
    run.conclude([*rows(arms, drawn), *recorded_rows(recorded)])


if __name__ == "__main__":
    main()
