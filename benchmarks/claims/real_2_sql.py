"""Claim real_2: a model of half a billion parameters gets better at SQL tasks that nobody here wrote.

Qwen2.5-Coder-0.5B-Instruct (from its Q4_K_M file, in bfloat16), served by vLLM's CPU build on this machine, at the
database part of LifelongAgentBench: 255 train tasks online (predict, then learn from the grade; failed ones are tried
twice more), then, frozen, 61 tasks that are held out, spread over the skill labels, about tables that no other task
has. Controls of the same run: without memory, with memory once more (A/A), with a memory that learned nothing, and in a
bare prompt without any framework.

The replies are recorded (`benchmarks/data/replies/`), and the life kept under `build/real/`: killed, or on another day
and machine, the same command goes on. It needs the file of the benchmark (in the folder that EVOLVE_TEST_DATA names),
the weights (`make real-models`) and vLLM (`scripts/install_vllm_cpu.sh`). With `--quick` 12 and 12 tasks.
"""

from __future__ import annotations

from typing import Any

from benchmarks.claim import Row, at_least, begin
from benchmarks.real.arms import Arms, controls, folder, lived, recorded_rows, recording
from benchmarks.real.figures import above, difference, rate
from benchmarks.real.files import data
from benchmarks.real.lives import AT_ONCE, BF16, Life, Printed, served_bf16

MODEL = "qwen2.5-coder-0.5b-instruct"
TRAIN, HELD_OUT, QUICK = 255, 61, 12
SEED = 0
LEARNING: dict[str, dict[str, Any]] = {
    "run": {"batch_size": 32, "attempts": 3},
    "exemplars": {"enabled": True, "k": 3, "token_budget": 700},
    "playbook": {"reflector": "none", "curator": "direct"},
    "gate": {"names": ["default"], "calls_advance": 400},
    "controls": {"no_memory": 0.0},
}
SMALL_PURSE = {"gate": {**LEARNING["gate"], "calls_advance": 24}}
"""Of `--quick`, whose gates would else work longer than its stream."""


def rows(arms: Arms) -> list[Row]:
    """Return the figures of the life."""
    n = len(arms.on)
    return [
        Row("bare prompt, % solved", rate(arms.bare), n=n, seed=SEED),
        *controls(arms, SEED),
        difference("without memory minus bare prompt, points", arms.bare, arms.off, seed=SEED),
        difference("learned minus without memory, points", arms.off, arms.on, at_least(10), seed=SEED),
        above("the same: lower end of the interval", arms.off, arms.on, 0, seed=SEED),
        Row("changes applied", arms.learned, at_least(1), seed=SEED),
    ]


def main() -> None:
    """Serve, live, record."""
    run = begin("real_2_sql", __doc__)
    train, held_out = (QUICK, QUICK) if run.quick else (TRAIN, HELD_OUT)
    environment = {"name": "lifelong_db", "data": data("lifelong_db_train.json"), "seed": SEED}
    recorded = recording(run)
    with served_bf16(MODEL) as url:
        told = (Printed("life"),)
        life = Life(folder(run), url, MODEL + BF16, environment, LEARNING, told, recorded, AT_ONCE)
        arms = lived(life, train, held_out, sections=SMALL_PURSE if run.quick else {})
    run.conclude([*rows(arms), *recorded_rows(recorded)])


if __name__ == "__main__":
    main()
