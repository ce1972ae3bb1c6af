"""Claim real_5: does a larger model that reflects make a smaller one that acts better?

SmolLM2-135M-Instruct acts in two lives on the same questions of ACE's Formula. In one it reflects and curates for
itself, in the other Qwen2.5-Coder-0.5B-Instruct does; both through llama.cpp on this machine, a thread each. 120 train
questions online, then, frozen, 120 held-out questions. Lessons alone: no exemplars, and gate `static` only, since what
is asked is what the lessons of either are worth. Controls of each life: without memory, with memory once more (A/A),
with a memory that learned nothing.

The replies are recorded (`benchmarks/data/replies/`), and the lives kept under `build/real/`: killed, or on another day
and machine, the same command goes on. It needs the files of the benchmark (in the folder that EVOLVE_TEST_DATA names)
and the weights (`make real-models`). With `--quick` 4 and 8 questions.
"""

from __future__ import annotations

from typing import Any

from benchmarks.claim import Row, at_least, begin
from benchmarks.real.arms import Arms, controls, folder, lived, recorded_rows, recording
from benchmarks.real.figures import difference
from benchmarks.real.files import data
from benchmarks.real.lives import Life, Printed, served

ACTING, REFLECTING = "smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct"
TRAIN, HELD_OUT = 120, 120
QUICK = (4, 8)
SEED = 0
LEARNING: dict[str, dict[str, Any]] = {
    "run": {"batch_size": 8},
    "playbook": {"reflector": "model", "curator": "model"},
    "gate": {"names": ["static"]},
    "controls": {"no_memory": 0.0},
}


def rows(alone: Arms, helped: Arms) -> list[Row]:
    """Return the figures of both lives."""
    own, other = "SmolLM2 for all roles: ", "Qwen reflects and curates: "
    text = "learned with Qwen's lessons minus learned with its own, points"
    lives = [(own, alone), (other, helped)]
    told = [row for who, arms in lives for row in named(who, controls(arms, SEED))]
    gains = [
        difference(f"{who}learned minus without memory, points", arms.off, arms.on, seed=SEED) for who, arms in lives
    ]
    applied = [Row(f"{who}changes applied", arms.learned, seed=SEED) for who, arms in lives]
    return [difference(text, alone.on, helped.on, at_least(0), seed=SEED), *gains, *applied, *told]


def named(who: str, found: list[Row]) -> list[Row]:
    """Return rows that say whose life they are about."""
    return [Row(f"{who}{row.claim}", row.measured, row.target, row.n, row.ci, row.seed) for row in found]


def main() -> None:
    """Serve, live twice, record."""
    run = begin("real_5_roles", __doc__)
    train, held_out = QUICK if run.quick else (TRAIN, HELD_OUT)
    home = folder(run)
    environment = {
        "name": "formula",
        "train": data("formula_train_subset_500.jsonl"),
        "validation": data("formula_val_subset_300.jsonl"),
        "seed": SEED,
    }
    recorded = recording(run)

    def live(name: str, url: str, sections: dict[str, dict[str, Any]]) -> Arms:
        life = Life(home / name, url, ACTING, environment, sections, (Printed(name),), recorded)
        return lived(life, train, held_out, bare=False)

    with served(ACTING, threads=1) as url:
        alone = live("alone", url, LEARNING)
        with served(REFLECTING, threads=1) as other:
            role = {"name": "openai", "base_url": other, "model": REFLECTING}
            helped = live("taught", url, {**LEARNING, "policy": {"reflector": role, "curator": role}})
    run.conclude([*rows(alone, helped), *recorded_rows(recorded)])


if __name__ == "__main__":
    main()
