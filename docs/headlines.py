"""The figures that README shows, each read from a stored result beside its control.

`HEADLINES` is in the order of what matters to a user: what real models did comes first. README shows the first ten that
are measured; every other figure is in docs/results.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from benchmarks.table import ROOT, Rows, find

SCRIPTS = ROOT / "benchmarks" / "claims"
MOST = 10
"""Rows of README's table."""
REAL = ("real_", "train_1_")
"""What the claims on models of half a billion parameters begin with."""


class Headline(NamedTuple):
    """One row: which stored figure, which control beside it, and the words for both."""

    claim: str
    says: str
    """What was measured; `{n}` stands for how many there were."""
    figure: str
    beside: str
    """The stored figure that stands beside it."""
    control: str
    """What that figure is; `{}` stands for its value."""


WITHOUT = "{} % without memory"
HEADLINES = (
    Headline(
        "real_1_formula",
        "Formula, 0.5 B, memory and weights, {n}: points",
        "memory and weights minus without memory, points",
        "without memory, % solved",
        WITHOUT,
    ),
    Headline(
        "real_2_sql",
        "SQL tasks, 0.5 B model, weights (gold too), {n}: points",
        "weights alone minus without memory, points",
        "without memory, % solved",
        "{} % before",
    ),
    Headline(
        "real_4_peers",
        "Formula, 200 questions to adapt to, {n}: points",
        "frugal minus gepa, read generously, points",
        "control: without memory minus gepa, read generously, points",
        "over GEPA; {} no memory",
    ),
    Headline(
        "real_6_weights",
        "Formula, a LoRA from that journal, no memory, {n}: points",
        "child minus parent, without memory, points",
        "parent, without memory, % solved",
        "{} % before",
    ),
    Headline(
        "real_3_textworld",
        "cooking games, 0.5 B, {n} games: points",
        "learned minus without memory, points of the score",
        "commands drawn by lot, mean score, %",
        "{} % by lot",
    ),
    Headline(
        "train_1_learns",
        "Formula, 0.5 B model, GRPO, {n} questions: points",
        "Qwen 0.5 B on Formula, NVIDIA_H200, greedy, points: grpo minus start",
        "Qwen 0.5 B on Formula, NVIDIA_H200, greedy, points: grpo, rewards shuffled minus start",
        "{}, rewards by lot",
    ),
    Headline(
        "mend_1_first_hour",
        "README's first hour, {n} held-out: points gained",
        "README: held-out with memory minus without, points",
        "README: held-out without memory, % solved",
        WITHOUT,
    ),
    Headline(
        "gates_1_loop",
        "{n} new offices, after 60 tasks in each: % solved",
        "gated, % of all test tasks",
        "cold, % of all test tasks",
        WITHOUT,
    ),
    Headline(
        "mend_4_worlds",
        "a text game, {n} held-out tasks: points gained",
        "cellar: held-out with memory minus without, points",
        "cellar: solved without memory, % (control)",
        WITHOUT,
    ),
    Headline(
        "inspect_4_integrations",
        "a wrapped LangChain agent, {n} tasks: points gained",
        "wrapped agent, learning on: after minus before",
        "wrapped agent, learning off: after minus before",
        "{} with learning off",
    ),
    Headline(
        "gates_1_protects",
        "a reflector lies in every 3rd batch, {n}: points saved",
        "lying: gated minus ungated, points",
        "lying, ungated: % of all test tasks",
        "{} % ungated",
    ),
    Headline(
        "rl_7_from_logs",
        "a LoRA from the journal, no memory, {n} offices: points",
        "sft, same office, playbook off: points gained",
        "parent, same office, playbook off, % solved",
        "{} % before",
    ),
    Headline(
        "rl_7_from_logs",
        "that LoRA in {n} other offices, rules given: points",
        "sft, unseen, rules given: points gained",
        "parent, unseen, rules given, % solved",
        "{} % before",
    ),
    Headline(
        "mend_5_attacks",
        "{n} texts with a hidden harmful half: admitted",
        "default gates: sleeping texts admitted with what sleeps",
        "default gates of 69e46c8 (control): sleeping texts admitted with what sleeps",
        "{} by earlier gates",
    ),
    Headline(
        "skills_1_shorter",
        "skills, {n} offices: % fewer tokens per solved task",
        "generated tokens per solved task: % fewer with skills",
        "A/A: % fewer tokens per solved task",
        "{} in an A/A pair",
    ),
    Headline(
        "loop_3_survives",
        "killed while it ran, {n} stored events: events lost",
        "committed events lost or changed",
        "SIGKILLs during online runs",
        "{} kills",
    ),
)


def table(results: Mapping[str, Rows]) -> str:
    """Return README's table of stored results, below what is to be said of the claims on real models."""
    shown = [each for each in HEADLINES if each.claim in results][:MOST]
    head = ["| what | measured [95 %] | beside it | claim, commit |", "| --- | --- | --- | --- |"]
    rows = [_row(each, results[each.claim]) for each in shown]
    return "\n".join([*_missing(results), _acting(shown), *head, *rows]) + "\n"


def _acting(shown: Sequence[Headline]) -> str:
    """Return the sentence that says who acts in which rows."""
    real = sum(1 for _ in takewhile(lambda each: each.claim.startswith(REAL), shown))
    return f"In the first {real} rows a model of half a billion parameters acts; below them *pocket* or a script.\n"


def _row(headline: Headline, rows: Rows) -> str:
    found, beside = (find(rows, claim) for claim in (headline.figure, headline.beside))
    sign = "+" * ("points" in headline.says and found["measured"] > 0)
    interval = f" [{', '.join(map(_number, found['ci']))}]" if found["ci"] else ""
    measured = f"{sign}{_number(found['measured'])}{interval}"
    control = headline.control.format(_number(beside["measured"]))
    claim = f"`{short(headline.claim)}` {found['commit'][:7]}"
    return f"| {headline.says.format(n=found['n'])} | {measured} | {control} | {claim} |"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _missing(results: Mapping[str, Rows]) -> Iterator[str]:
    """Yield the sentence that says which claims on real models have no figures yet, if there are any."""
    claims = [path.stem for path in SCRIPTS.glob("real_[0-9]*.py")]
    waiting = sorted(short(name) for name in claims if name not in results)
    if len(waiting) == len(claims):
        wait = f"The claims `{waiting[0]}` to `{waiting[-1]}` are written for that and were not run."
        yield f"**No real model is measured yet.** {wait}\n"
    elif waiting:
        yield f"On real models these claims are not measured yet: {', '.join(f'`{name}`' for name in waiting)}.\n"


def short(claim: str) -> str:
    """Return a claim's name without its last words where no other claim has the same number: `rl_7`."""
    start = "_".join(claim.split("_")[:2])
    return start if len([*SCRIPTS.glob(f"{start}_*.py")]) == 1 else claim
