"""Claim real_5: does a larger model in the other roles make a smaller one that acts better?

SmolLM2-135M-Instruct answers questions of three families of reasoning-gym 0.1.25, drawn from seeds: least common
multiples, sums of two digits, and who of several people feels something about a thing. It is the third attempt: by
looks at questions of other seeds the larger model solves some of each family, the smaller one none unless it is shown
solved ones, and no one answer is right often (docs/LOG.md). Three lives on the same questions: it has every role;
Qwen2.5-Coder-0.5B-Instruct reflects; Qwen is its teacher besides and makes the second attempt at what it failed
(`policy.teacher.attempts`). Bullets and exemplars, gate `static` alone, since what is asked is what the knowledge of
each is worth. 63 train questions online, then, frozen, 120 held-out ones; none stands in both. The small model follows
no rule, whoever wrote it (docs/LOG.md), so the targets are about exemplars alone; rules alone and both stand beside.
Controls of each life: without memory, with memory once more (A/A), with a memory that learned nothing. Control of what
exemplars teach: one answer to all questions of a family, the one that is right most often in its train questions.

Both models answer through llama.cpp on this machine. The replies are recorded (`benchmarks/data/replies/`), and the
lives kept under `build/real/`: killed, or on another day and machine, the same command goes on. It needs `pip install
reasoning-gym==0.1.25` and the weights (`make real-models`). With `--quick` 6 and 6 questions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from benchmarks.claim import Row, begin
from benchmarks.real.arms import Arms, controls, folder, lived, recorded_rows, recording
from benchmarks.real.figures import Passed, above, difference, rate
from benchmarks.real.lives import HELD_OUT, TIMEOUT_S, Life, Printed, served
from benchmarks.real.questions import Questions
from evolve.episode.arms import MAIN

ACTING, LARGER = "smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct"
TRAIN, TESTED, QUICK = 21, 40, 2
"""Questions of each family."""
SEED = 0
REFLECTION = 256
"""Most tokens of a reflection: the smaller model fills any number with repetitions."""
FAMILIES: dict[str, dict[str, Any]] = {
    "lcm": {"max_value": 12},
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "needle_haystack": {"min_num_statements": 4, "max_num_statements": 8},
}
NOTES = {"lcm": "Reply with the number alone."}
"""Else the larger model writes a sentence, which is no answer there."""
LEARNING: dict[str, dict[str, Any]] = {
    "run": {"batch_size": 8, "attempts": 2},
    "policy": {"max_tokens": 48},
    "exemplars": {"enabled": True, "k": 4, "token_budget": 800},
    "playbook": {"reflector": "model", "curator": "direct", "token_budget": 1600},
    "gate": {"names": ["static"]},
    "controls": {"no_memory": 0.0},
}
RULES, EXEMPLARS = "rules alone", "exemplars alone"
PARTS: dict[str, dict[str, dict[str, Any]]] = {
    RULES: {"exemplars": {"enabled": False}, "controls": {"no_memory": 0.0}},
    EXEMPLARS: {"memory": {"kinds": ["exemplar"]}, "controls": {"no_memory": 0.0}},
}
"""What a part of what was learned is worth by itself."""
OWN, REFLECTED, TAUGHT = "SmolLM2 for all roles", "Qwen reflects", "Qwen reflects and shows"
Lived = tuple[Arms, Mapping[str, Passed]]
"""What a life came to, and what it knows of each of `PARTS`."""


def role(url: str, model: str) -> dict[str, Any]:
    """Return the section of a role that this model has."""
    return {"name": "openai", "base_url": url, "model": model, "timeout_s": TIMEOUT_S}


def rows(lives: Mapping[str, Lived], always: Passed) -> list[Row]:
    """Return what a larger model in the other roles is worth, then the figures of each life.

    `always`: which held-out questions one answer to all of a family solves.
    """
    found: list[Row] = []
    arms, parts = lives[OWN]
    taught = lives[TAUGHT][1][EXEMPLARS]
    for who, (other, others) in ((who, lives[who]) for who in (TAUGHT, REFLECTED)):
        text = f"{who} minus {OWN}"
        found += [difference(f"{text}, {part}, points", parts[part], others[part], seed=SEED) for part in PARTS]
        found.append(difference(f"{text}, rules and exemplars, points", arms.on, other.on, seed=SEED))
    constant = "one answer to all of a family"
    found.append(Row(f"{constant}, % solved (control)", rate(always), n=len(always), seed=SEED))
    found.append(difference(f"{TAUGHT}, {EXEMPLARS}, minus {constant}, points", always, taught, seed=SEED))
    text = f"{TAUGHT}, {EXEMPLARS}, above {OWN} and above {constant}: the lower of both lower ends"
    lower = [above(text, base, taught, 0, SEED) for base in (parts[EXEMPLARS], always)]
    found.append(min(lower, key=lambda row: row.measured or 0.0))
    for who, (each, each_parts) in lives.items():
        told = [
            *(Row(f"{part}, % solved", rate(passed), n=len(passed), seed=SEED) for part, passed in each_parts.items()),
            difference("exemplars alone minus without memory, points", each.off, each_parts[EXEMPLARS], seed=SEED),
            Row("changes applied", each.learned, seed=SEED),
            *controls(each, SEED),
        ]
        found += [Row(f"{who}: {row.claim}", row.measured, row.target, row.n, row.ci, row.seed) for row in told]
    return found


def main() -> None:
    """Serve, live three times, record."""
    run = begin("real_5_roles", __doc__)
    if find_spec("reasoning_gym") is None:
        sys.exit("reasoning-gym is not installed: pip install reasoning-gym==0.1.25")
    train, held_out = (QUICK, QUICK) if run.quick else (TRAIN, TESTED)
    home, recorded = folder(run), recording(run)
    world = {
        "name": "benchmarks.real.questions:Questions",
        "families": FAMILIES,
        "train": train,
        "test": held_out,
        "notes": NOTES,
    }

    def live(name: str, url: str, roles: dict[str, Any]) -> Lived:
        sections = {**LEARNING, "policy": {**LEARNING["policy"], **roles}}
        life = Life(home / name, url, ACTING, world, sections, (Printed(name),), recorded)
        count = held_out * len(FAMILIES)
        arms = lived(life, train * len(FAMILIES), count, bare=False)
        return arms, {part: life.examine(part, count, **changes)[MAIN] for part, changes in PARTS.items()}

    with served(ACTING) as url, served(LARGER) as other:
        small, larger = role(url, ACTING), role(other, LARGER)
        reads = {"reflector": {**larger, "max_tokens": REFLECTION}}
        lives = {
            OWN: live("own", url, {"reflector": {**small, "max_tokens": REFLECTION}}),
            REFLECTED: live("reflected", url, reads),
            TAUGHT: live("taught", url, {**reads, "teacher": {**larger, "attempts": True, "temperature": 0.0}}),
        }
    always = Questions(FAMILIES, train, held_out).always(HELD_OUT)
    run.conclude([*rows(lives, always), *recorded_rows(recorded)])


if __name__ == "__main__":
    main()
