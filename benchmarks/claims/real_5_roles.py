"""Claim real_5: does a larger model in the other roles make a smaller one that acts better?

SmolLM2-135M-Instruct answers questions of three families of reasoning-gym 0.1.25 (sums of two digits, greatest common
divisors, letters counted), drawn from seeds. Three lives on the same questions: it has every role; Qwen2.5-Coder-0.5B-
Instruct reflects; Qwen is its teacher besides and makes the further attempts at what it failed
(`policy.teacher.attempts`). Bullets and exemplars, three attempts, gate `static` alone, since what is asked is what the
knowledge of each is worth. 64 train questions online, then, frozen, 120 held-out ones. Controls of each life: without
memory, with memory once more (A/A), with a memory that learned nothing. Beside them its rules alone, without exemplars.

Both models answer through llama.cpp on this machine. The replies are recorded (`benchmarks/data/replies/`), and the
lives kept under `build/real/`: killed, or on another day and machine, the same command goes on. It needs `pip install
reasoning-gym==0.1.25` and the weights (`make real-models`). With `--quick` 8 and 8 questions.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from benchmarks.claim import Row, begin
from benchmarks.real.arms import Arms, controls, folder, lived, recorded_rows, recording
from benchmarks.real.figures import Passed, difference, more_than, rate
from benchmarks.real.lives import SLOTS, TIMEOUT_S, Life, Printed, served
from evolve.episode.arms import MAIN

ACTING, LARGER = "smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct"
TRAIN, TESTED = 64, 120
QUICK = (8, 8)
SEED = 0
REFLECTION = 256
"""Most tokens of a reflection: the smaller model fills any number with repetitions."""
WORLD: dict[str, Any] = {
    "name": "gym",
    "make": "examples.worlds.reasoning:Reasoning",
    "arguments": {
        "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
        "gcd": {"max_value": 30},
        "letter_counting": {},
    },
    "description": "Answer the question. Reply with the answer and nothing else.",
    "instruction": "Answer the question.",
    "trusted": True,
    "dev": 0,
    "max_concurrency": SLOTS,
}
LEARNING: dict[str, dict[str, Any]] = {
    "run": {"batch_size": 8, "attempts": 3},
    "policy": {"max_tokens": 48},
    "exemplars": {"enabled": True, "k": 4, "token_budget": 800},
    "playbook": {"reflector": "model", "curator": "direct", "token_budget": 1600},
    "gate": {"names": ["static"]},
    "controls": {"no_memory": 0.0},
}
RULES_ALONE: dict[str, dict[str, Any]] = {"exemplars": {"enabled": False}, "controls": {"no_memory": 0.0}}
OWN, REFLECTED, TAUGHT = "SmolLM2 for all roles", "Qwen reflects", "Qwen reflects and shows"


def role(url: str, model: str) -> dict[str, Any]:
    """Return the section of a role that this model has."""
    return {"name": "openai", "base_url": url, "model": model, "timeout_s": TIMEOUT_S}


def rows(lives: dict[str, tuple[Arms, Passed]]) -> list[Row]:
    """Return what a larger model in the other roles is worth, then the figures of each life."""
    own, own_rules = lives[OWN]
    found = []
    for who in (TAUGHT, REFLECTED):
        arms, rules = lives[who]
        better = difference(f"{who} minus {OWN}, points", own.on, arms.on, seed=SEED)
        found.append(better)
        if who == TAUGHT and better.ci:
            found.append(Row("the same: lower end of the interval", better.ci[0], more_than(0), better.n, seed=SEED))
        found.append(difference(f"{who} minus {OWN}, rules alone, points", own_rules, rules, seed=SEED))
    for who, (arms, rules) in lives.items():
        told = [
            difference("learned minus without memory, points", arms.off, arms.on, seed=SEED),
            Row("rules alone, % solved", rate(rules), n=len(rules), seed=SEED),
            Row("changes applied", arms.learned, seed=SEED),
            *controls(arms, SEED),
        ]
        found += [Row(f"{who}: {row.claim}", row.measured, row.target, row.n, row.ci, row.seed) for row in told]
    return found


def main() -> None:
    """Serve, live three times, record."""
    run = begin("real_5_roles", __doc__)
    if find_spec("reasoning_gym") is None:
        sys.exit("reasoning-gym is not installed: pip install reasoning-gym==0.1.25")
    train, held_out = QUICK if run.quick else (TRAIN, TESTED)
    home, recorded = folder(run), recording(run)
    world = {**WORLD, "train": train, "test": held_out}

    def live(name: str, url: str, roles: dict[str, Any]) -> tuple[Arms, Passed]:
        sections = {**LEARNING, "policy": {**LEARNING["policy"], **roles}}
        life = Life(home / name, url, ACTING, world, sections, (Printed(name),), recorded)
        arms = lived(life, train, held_out, bare=False)
        return arms, life.examine("rules alone", held_out, **RULES_ALONE)[MAIN]

    with served(ACTING) as url, served(LARGER) as other:
        small, larger = role(url, ACTING), role(other, LARGER)
        reads = {"reflector": {**larger, "max_tokens": REFLECTION}}
        lives = {
            OWN: live("own", url, {"reflector": {**small, "max_tokens": REFLECTION}}),
            REFLECTED: live("reflected", url, reads),
            TAUGHT: live("taught", url, {**reads, "teacher": {**larger, "attempts": True}}),
        }
    run.conclude([*rows(lives), *recorded_rows(recorded)])


if __name__ == "__main__":
    main()
