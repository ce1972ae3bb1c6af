"""The curves of a training: which figures are drawn together, and all of them as PNG, which needs the `plot` extra."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

Told = Sequence[Mapping[str, float]]
"""The figures of a training, a mapping for each of its iterations or updates."""


class Panel(NamedTuple):
    """Figures that are drawn over each other, since they have one unit."""

    title: str
    figures: tuple[str, ...]
    """Names, or patterns of `fnmatch`."""

    def series(self, told: Told) -> dict[str, list[float | None]]:
        """Return the values of each figure that was told at least once, None where it was not."""
        every = sorted({name for figures in told for name in figures})
        names = dict.fromkeys(name for wanted in self.figures for name in every if fnmatch(name, wanted))
        return {name: [figures.get(name) for figures in told] for name in names}


SECTIONS: dict[str, tuple[Panel, ...]] = {
    "What it earns": (
        Panel("success, share of episodes", ("success", "eval_success")),
        Panel("reward of an episode", ("reward", "reward_std")),
        Panel("reward by position in the chain", ("reward_position_*",)),
        Panel("groups whose rewards differ, share", ("groups_differ",)),
        Panel("retries better than what failed", ("retries_better",)),
    ),
    "What it does": (
        Panel("written, tokens an episode", ("written", "written_p50", "written_p90", "written_max")),
        Panel("actions without an error, share", ("valid",)),
        Panel("tasks that use an earlier skill, share", ("skill_use", "skill_claims")),
        Panel("tokens a second", ("rollout_tokens_per_s", "update_tokens_per_s")),
    ),
    "How far it moves": (
        Panel("entropy, nats a token", ("entropy",)),
        Panel("divergence from the sampler, nats a token", ("rollout_kl",)),
        Panel("divergence from the base model, nats a token", ("reference_kl",)),
        Panel("what the world answers, nats a token", ("echo",)),
        Panel("largest importance ratio of a token", ("ratio_max",)),
        Panel("effective sample size, share of tokens", ("ess",)),
        Panel("tokens that older weights sampled, share", ("off_policy",)),
    ),
    "Its updates": (
        Panel("loss", ("loss",)),
        Panel("norm of the gradient", ("gradient_norm",)),
        Panel("tokens at a bound of the loss, share", ("clip_fraction", "dual_clip_fraction")),
        Panel("weights of the correction", ("correction_mean", "correction_max")),
    ),
}
"""Heading -> its panels, in the order in which they are read."""
COLUMNS = 3


def drawn(told: Told, panels: Iterable[Panel]) -> dict[str, dict[str, list[float | None]]]:
    """Return the title of each panel that has something to draw, with its series."""
    found = {panel.title: panel.series(told) for panel in panels}
    return {title: series for title, series in found.items() if series}


def over(told: Told) -> tuple[str, list[float]]:
    """Return what the figures were told over, iterations or (where there are none) updates, and its values."""
    name = "iteration" if "iteration" in told[0] else "update"
    return name, [figures[name] for figures in told]


def save(path: Path, told: Told, title: str) -> None:
    """Draw the figures that a training told, a panel each, over its iterations or updates."""
    from matplotlib.figure import Figure

    panels = drawn(told, (panel for some in SECTIONS.values() for panel in some))
    label, x = over(told)
    rows = max(1, -(-len(panels) // COLUMNS))
    figure = Figure(figsize=(4 * COLUMNS, 2.6 * rows), layout="constrained")
    for at, (heading, lines) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, COLUMNS, at)
        for name, values in lines.items():
            points = [(place, value) for place, value in zip(x, values, strict=True) if value is not None]
            axes.plot(*zip(*points, strict=True), marker="." if len(points) < 60 else "", label=name)
        axes.set(title=heading, xlabel=label)
        if len(lines) > 1:
            axes.legend(fontsize="x-small")
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
