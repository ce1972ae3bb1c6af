"""Claim gates_5: the default is no worse than the presets that the pocket model can play. Same streams, ten offices.

Pocket is asked to reflect and curate as each preset wants it. It cannot write as some of them ask: nothing is applied
in any office, and the arm is one without memory. A preset that wrote nothing, or solves no more than the margin above
no memory, has no target: an empty memory would meet it. Holm's rule is over the others. The figures say how the parts
work together here, and do not rank the papers' methods. Presets whose curator is `distill` are left out: it has no
compact prompt. `--quick` lets the office's scripted worker act and the rules reflector write, without any model.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.claim import Row, at_least, begin
from benchmarks.office_arms import folder
from benchmarks.presets import Bench, measure, quick
from evolve.compare.arms import ArmRole
from evolve.compare.comparison import ArmFigures, Comparison, Contrast
from evolve.config.preset import find_preset, preset_names
from evolve.statistics.clusters import bounds
from evolve.statistics.holm import Bounded, reach

MARGIN = -0.03
DEPLOYMENTS = tuple(range(10))


def lower(contrast: Contrast, level: float) -> float:
    """Return the one-sided lower bound of default - preset; the contrast is preset - default."""
    return -bounds(contrast.lives, 1 - 2 * level)[1]


def rows(found: Comparison) -> list[Row]:
    """Return a row for each preset, with a target where it learned anything; then every arm's figures.

    The bound is at the level at which Holm's rule decided.
    """
    floor = next(arm.rate for arm in found.arms if arm.role is ArmRole.CONTROL)
    empty = {arm.name: why_empty(arm, floor) for arm in found.arms}
    compared = [contrast for contrast in found.contrasts if contrast.role is ArmRole.COMPARED]
    asked = {contrast.candidate: contrast for contrast in compared if not empty[contrast.candidate]}
    ask = {name: (lambda level, contrast=contrast: lower(contrast, level)) for name, contrast in asked.items()}
    shown = reach(ask, MARGIN)
    return [
        *[_bound(name, asked[name], decided, found.n) for name, decided in shown.items()],
        *[_beside(contrast, why, found.n) for contrast in compared if (why := empty[contrast.candidate])],
        Row("A/A floor: tasks that flip with other seeds, %", _points(found.floor), n=found.n, seed=0),
        *[Row(f"{arm.name}: solved, %", 100 * arm.rate, n=arm.episodes, seed=0) for arm in found.arms],
        *[Row(f"{arm.name}: changes of knowledge applied", arm.changes, n=found.worlds, seed=0) for arm in found.arms],
        *[Row(f"{arm.name}: calls of gates", arm.gates.calls, n=arm.gate_episodes, seed=0) for arm in found.arms],
    ]


def why_empty(arm: ArmFigures, floor: float) -> str:
    """Return why an empty memory would be no worse than an arm, in words; nothing where the arm learned something."""
    if not arm.changes:
        return "which wrote nothing here"
    return "" if arm.rate - floor > -MARGIN else "which gained nothing here"


def _bound(name: str, contrast: Contrast, decided: Bounded, n: int) -> Row:
    mean, ends = _turned(contrast)
    text = f"default - {name}, points: lower bound (mean {mean:+.1f}, level {decided.level:.3g})"
    return Row(text, 100 * decided.low, at_least(100 * MARGIN), n=n, ci=ends, seed=0)


def _beside(contrast: Contrast, why: str, n: int) -> Row:
    mean, ends = _turned(contrast)
    return Row(f"default - {contrast.candidate}, {why}, points", mean, n=n, ci=ends, seed=0)


def _turned(contrast: Contrast) -> tuple[float, tuple[float, float]]:
    """Return the mean of default - preset and its interval, in points."""
    difference = contrast.difference
    return 0.0 - 100 * difference.delta, (-100 * difference.high, -100 * difference.low)


def _distills(name: str) -> bool:
    return "distill" in find_preset(name).values.get("playbook", {}).get("curator", "")


def _points(share: float | None) -> float | None:
    return None if share is None else 100 * share


def main() -> None:
    """Measure and record."""
    claim = begin("gates_5_presets", __doc__)
    presets = tuple(name for name in preset_names() if not _distills(name))
    bench = quick(presets) if claim.quick else Bench(presets, DEPLOYMENTS, split="test_normal", memo=True)
    with folder() as root:
        found = measure(bench, Path(root) / "presets")
    claim.record(rows(found))


if __name__ == "__main__":
    main()
