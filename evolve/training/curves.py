"""The curves of a training, one panel for each figure, as PNG. Needs the `plot` extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

PANELS = {
    "success": "success, share of episodes",
    "reward": "reward, mean of episodes",
    "written": "written, tokens an episode",
    "valid": "actions without an error, share",
    "skill_use": "tasks that use an earlier skill, share",
    "retries_better": "retries better than what failed",
    "loss": "loss",
    "entropy": "entropy, nats a token",
    "rollout_kl": "divergence from the sampler, nats a token",
    "off_policy": "tokens that older weights sampled, share",
    "gradient_norm": "norm of the gradient",
}
"""Figure -> title of its panel."""
COLUMNS = 3


def save(path: Path, told: Sequence[Mapping[str, float]], title: str) -> None:
    """Draw the figures that a training told, over its iterations or, where it has none, its updates."""
    from matplotlib.figure import Figure

    over = "iteration" if "iteration" in told[0] else "update"
    names = [name for name in PANELS if any(name in figures for figures in told)]
    rows = -(-len(names) // COLUMNS)
    figure = Figure(figsize=(4 * COLUMNS, 2.6 * rows), layout="constrained")
    for at, name in enumerate(names, start=1):
        axes = figure.add_subplot(rows, COLUMNS, at)
        points = [(figures[over], figures[name]) for figures in told if name in figures]
        axes.plot([x for x, _ in points], [y for _, y in points], marker="." if len(points) < 60 else "")
        axes.set(title=PANELS[name], xlabel=over)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
