"""A comparison as Markdown. Names and ids are values in tables: pipes and line breaks in them are broken up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evolve.compare.arms import ArmRole
from evolve.compare.comparison import ArmFigures, Comparison, Contrast
from evolve.compare.life_results import Life
from memory.records import Usage

CURVES, FOREST = "curves.png", "forest.png"
_SHOWN = 40
"""Flipped tasks of a contrast that are listed in one direction; the JSON has them all."""


def markdown(found: Comparison) -> str:
    """Return the whole report."""
    parts = [
        f"# {' against '.join(arm.name for arm in found.arms if arm.role is ArmRole.COMPARED)}",
        _head(found),
        *([f"**{found.toy}**"] if found.toy else []),
        "## Differences, in points of 100",
        _differences(found),
        _reading(found),
        f"![paired differences]({FOREST})",
        "## Arms",
        _arms(found),
        *([f"![learning curves]({CURVES})"] if any(arm.curve for arm in found.arms) else []),
        "## What differs from the first arm",
        "\n".join(_differs(arm) for arm in found.arms[1:]),
        "## Flips by task",
        "\n\n".join(_flips(contrast) for contrast in found.contrasts),
        "## Each life",
        _lives(found.lives),
        *(["## Warnings", "\n".join(f"- {text}" for text in found.warnings)] if found.warnings else []),
    ]
    return "\n\n".join(parts) + "\n"


def differences(found: Comparison) -> list[dict[str, str]]:
    """Return the table of contrasts as text."""
    return [
        {
            "contrast": f"{contrast.candidate} - {contrast.base}",
            "difference": points(contrast.difference.delta),
            "95 % interval": f"[{points(contrast.difference.low)}, {points(contrast.difference.high)}]",
            "gained / lost": f"{contrast.difference.gained} / {contrast.difference.lost}",
            "McNemar p": f"{contrast.difference.p_mcnemar:.3g}",
            "Holm p": "-" if contrast.p_holm is None else f"{contrast.p_holm:.3g}",
        }
        for contrast in found.contrasts
    ]


def arms(found: Comparison) -> list[dict[str, str]]:
    """Return the table of arms as text."""
    return [
        {
            "arm": arm.name,
            "solved": f"{arm.rate:.1%} [{arm.interval.low:.0%}, {arm.interval.high:.0%}]",
            "missing": str(arm.missing),
            "learning": _spent(arm.learning),
            "gates, beside it": _gates(arm),
            "judging": _spent(arm.judging),
            "s / episode": f"{arm.learning_seconds:.2f} learning, {arm.seconds:.2f} judging",
            "changes": str(arm.changes),
            "shown": f"{arm.injected:.1f}",
        }
        for arm in found.arms
    ]


def points(share: float) -> str:
    """Return a difference of shares in points of 100, with its sign."""
    return f"{100 * share:+.1f}"


def reprint(found: Comparison) -> str:
    """Return the command that prints the report again."""
    return f"evolve compare --reprint {found.folder}"


def _head(found: Comparison) -> str:
    lines = [
        f"- started with `{found.command}`",
        f"- printed again by `{reprint(found)}`",
        f"- judged on `{found.split}`: n = {found.n} pairs of episodes for each contrast ({found.repeated})",
        f"- looks: number {found.look} at this split among the comparisons beside this one; it answers {found.family} "
        "questions, corrected by Holm's rule",
        f"- comparison {found.digest}",
    ]
    return "\n".join(lines)


def _reading(found: Comparison) -> str:
    methods = dict.fromkeys(contrast.difference.method for contrast in found.contrasts)
    return (
        f"{_floor(found.floor)}\n\nPositive = better than {found.arms[0].name}. Missing counts as failure. Interval: "
        f"{'; '.join(methods)}. McNemar's test is exact, two-sided, and takes tasks as independent; where several "
        "deployments or seeds differ, Holm's p starts from the larger of it and the t test's over them."
    )


def _floor(floor: float | None) -> str:
    if floor is None:
        return "A/A was not measured, so nothing says how much an arm differs from itself."
    said = f"A/A floor: {floor:.1%} of the tasks flip when the first arm lives again with other seeds"
    if floor:
        return (
            f"{said}; a contrast that flips no more than that is no evidence by it: look whether its flips go one way."
        )
    return f"{said}: here the seeds change nothing (greedy decoding, fixed order; `--set run.shuffle=true` draws one)."


def _differences(found: Comparison) -> str:
    return table(differences(found))


def _arms(found: Comparison) -> str:
    return table(arms(found))


def _spent(usage: Usage) -> str:
    tokens = usage.prompt_tokens + usage.completion_tokens
    money = f", ${usage.cost_usd:.2f}" if usage.cost_usd else ""
    return f"{usage.calls:,} calls, {tokens:,} tokens{money}"


def _gates(arm: ArmFigures) -> str:
    return f"{_spent(arm.gates)}, {arm.gate_episodes} episodes, {arm.looks} looks" if arm.gate_episodes else "-"


def _differs(arm: ArmFigures) -> str:
    if not arm.differs:
        return f"- **{_plain(arm.name)}**: nothing but the seeds"
    return f"- **{_plain(arm.name)}**: " + "; ".join(
        f"`{key}` {_plain(repr(before))} -> {_plain(repr(here))}" for key, (before, here) in sorted(arm.differs.items())
    )


def _flips(contrast: Contrast) -> str:
    head = f"**{_plain(contrast.candidate)} - {_plain(contrast.base)}**"
    gained = [f"{life.world}, seed {life.seed}: {task}" for life in contrast.lives for task in life.gained]
    lost = [f"{life.world}, seed {life.seed}: {task}" for life in contrast.lives for task in life.lost]
    return f"{head}\n\n- gained {len(gained)}: {_some(gained)}\n- lost {len(lost)}: {_some(lost)}"


def _some(tasks: Sequence[str]) -> str:
    more = f" and {len(tasks) - _SHOWN} more (in report.json)" if len(tasks) > _SHOWN else ""
    return "; ".join(map(_plain, tasks[:_SHOWN])) + more if tasks else "none"


def _lives(lives: Iterable[Life]) -> str:
    return table(
        [
            {
                "arm": life.arm,
                "world": life.world,
                "seed": str(life.seed),
                "solved": f"{life.exam.solved} / {life.exam.tasks}",
                "missing": str(life.missing),
                "model": f"{life.policy} {life.policy_version}",
                "reflector / curator": life.reflector,
                "snapshot": life.snapshot_id or "-",
                "config": life.config_hash,
                "runs": ", ".join(filter(None, (life.learned and life.learned.run_id, life.run_id))),
            }
            for life in lives
        ]
    )


def table(rows: Sequence[dict[str, str]]) -> str:
    """Return rows of equal keys as a Markdown table."""
    if not rows:
        return "none"
    head = " | ".join(rows[0])
    body = [" | ".join(map(_plain, row.values())) for row in rows]
    return "\n".join(f"| {line} |" for line in (head, " | ".join("---" for _ in rows[0]), *body))


def _plain(value: object) -> str:
    return str(value).replace("|", "/").replace("\n", " ").replace("`", "'")
