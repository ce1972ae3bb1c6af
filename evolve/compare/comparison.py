"""Results of a comparison: pure figures over the lives, ready for Markdown, JSON and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from evolve.compare.arms import Arm, ArmRole
from evolve.compare.life_results import Life, read_lives
from evolve.compare.plan import Plan
from evolve.episode.metrics import Interval, interval
from evolve.statistics.clusters import Difference, Pairing, compare, pairing
from evolve.statistics.holm import holm
from memory.records import Frozen, Usage


class ArmFigures(Frozen):
    """One arm over all its lives."""

    name: str
    role: ArmRole
    rate: float
    """Mean over lives of the share of report tasks solved."""
    interval: Interval
    """Wilson interval over all episodes together; it treats them as independent."""
    episodes: int
    missing: int
    """Not graded; they count as failures."""
    learning: Usage
    gates: Usage
    gate_episodes: int
    looks: int
    """Decisions of gates that rest on tasks that were run."""
    judging: Usage
    learning_seconds: float
    """Wall time of an episode of the stream, mean."""
    seconds: float
    """Wall time of an episode of the report split, mean."""
    injected: float
    changes: int
    curve: tuple[float, ...]
    """Share of lives that solved the n-th task of the stream; empty for an arm that did not learn."""
    differs: dict[str, tuple[Any, Any]]
    """`section.key` -> (value of the first arm, value here)."""


class Contrast(Frozen):
    """One arm against another, task by task. Positive = the candidate is better."""

    base: str
    candidate: str
    role: ArmRole
    difference: Difference
    p_holm: float | None
    """Adjusted over the compared arms; None for a control, which is no question that was asked."""
    lives: tuple[Pairing, ...]

    @property
    def flips(self) -> float:
        """Return the share of pairs that flipped either way."""
        return (self.difference.gained + self.difference.lost) / self.difference.n


class Comparison(Frozen):
    """Everything a report says."""

    folder: str
    command: str
    digest: str
    split: str
    look: int
    n: int
    """Pairs of episodes of each contrast."""
    worlds: int
    seeds: int
    toy: str | None
    """Why the result does not rank methods; None for a model that is no toy."""
    arms: tuple[ArmFigures, ...]
    contrasts: tuple[Contrast, ...]
    """A/A first, then the control, then the compared arms against the first."""
    lives: tuple[Life, ...]
    warnings: tuple[str, ...]

    @property
    def floor(self) -> float | None:
        """Return the share of pairs in which the first arm differs from itself; None where it was not measured."""
        return next((contrast.flips for contrast in self.contrasts if contrast.role is ArmRole.AA), None)

    @property
    def repeated(self) -> str:
        """Return in words how often every arm lives."""
        return f"{self.worlds} deployment{'s' * (self.worlds > 1)} x {self.seeds} seed{'s' * (self.seeds > 1)}"

    @property
    def family(self) -> int:
        """Return how many comparisons Holm's rule corrects for."""
        return sum(contrast.role is ArmRole.COMPARED for contrast in self.contrasts)


def read_comparison(folder: Path, plan: Plan) -> Comparison:
    """Return what a finished comparison found, from its journals. Raises as `read_lives`."""
    return make_comparison(plan, read_lives(plan, folder), str(folder))


def make_comparison(plan: Plan, lives: Sequence[Life], folder: str) -> Comparison:
    """Return the figures of all arms and contrasts."""
    contrasts = _contrasts(plan, lives)
    return Comparison(
        folder=folder,
        command=plan.command,
        digest=plan.digest,
        split=plan.split,
        look=plan.look,
        n=sum(len(replicate.report) for replicate in plan.replicates),
        worlds=len({replicate.world for replicate in plan.replicates}),
        seeds=len({replicate.seed for replicate in plan.replicates}),
        toy=_toy(plan),
        arms=tuple(_figures(plan.arms[0], arm, [life for life in lives if life.arm == arm.name]) for arm in plan.arms),
        contrasts=contrasts,
        lives=tuple(lives),
        warnings=tuple(f"{life.arm} in {life.replicate}: {text}" for life in lives for text in life.warnings),
    )


def _contrasts(plan: Plan, lives: Sequence[Life]) -> tuple[Contrast, ...]:
    marks = {(life.arm, life.replicate): life.passed for life in lives}
    first, found = plan.arms[0], list[tuple[Arm, tuple[Pairing, ...], Difference]]()
    for role in (ArmRole.AA, ArmRole.CONTROL, ArmRole.COMPARED):
        for arm in plan.arms[1:]:
            if arm.role is role:
                pairs = tuple(
                    pairing(r.world, r.seed, r.report, marks[first.name, r.name], marks[arm.name, r.name])
                    for r in plan.replicates
                )
                found.append((arm, pairs, compare(pairs)))
    asked = [difference.p for arm, _, difference in found if arm.role is ArmRole.COMPARED]
    adjusted = iter(holm(asked))
    return tuple(
        Contrast(
            base=first.name,
            candidate=arm.name,
            role=arm.role,
            difference=difference,
            p_holm=next(adjusted) if arm.role is ArmRole.COMPARED else None,
            lives=pairs,
        )
        for arm, pairs, difference in found
    )


def _figures(first: Arm, arm: Arm, lives: Sequence[Life]) -> ArmFigures:
    solved = sum(life.exam.solved for life in lives)
    episodes = sum(life.exam.tasks for life in lives)
    learned = [life.learned for life in lives if life.learned]
    streamed = sum(len(each.curve) for each in learned)
    mine, theirs = arm.values(), first.values()
    return ArmFigures(
        name=arm.name,
        role=arm.role,
        rate=mean(life.exam.tgc for life in lives),
        interval=interval(solved, episodes),
        episodes=episodes,
        missing=sum(life.missing for life in lives),
        learning=sum((each.usage for each in learned), Usage()),
        gates=sum((each.gates.usage for each in learned), Usage()),
        gate_episodes=sum(each.gates.episodes for each in learned),
        looks=sum(count.looks for each in learned for count in each.gates.counts),
        judging=sum((life.exam.usage for life in lives), Usage()),
        learning_seconds=sum(each.seconds for each in learned) / streamed if streamed else 0.0,
        seconds=mean(life.exam.seconds for life in lives),
        injected=mean(life.exam.injected for life in lives),
        changes=sum(each.changes for each in learned),
        curve=_mean_curve([each.curve for each in learned]),
        differs={key: (theirs.get(key), value) for key, value in mine.items() if theirs.get(key) != value},
    )


def _mean_curve(curves: Sequence[Sequence[bool]]) -> tuple[float, ...]:
    """Return the share of lives that solved the n-th task; deployments may have streams of other lengths."""
    longest = max(map(len, curves), default=0)
    return tuple(mean(curve[at] for curve in curves if at < len(curve)) for at in range(longest))


def _toy(plan: Plan) -> str | None:
    """Say why the result does not rank the papers' methods, if it does not."""
    if not plan.toys:
        return None
    return (
        f"The policy is {', '.join(plan.toys)}: a small model or a script made to show how the parts work. These "
        "results do not rank the papers' methods, which were published with large models in all roles."
    )
