"""Claim train_7: every member of every slot makes a real update, and every option of a member can be set.

Each is a training of its own by the pocket model, on rollouts of a world that pays half of what is said
(`parity_world`), from the configuration as a user writes it; the weights that it published are read. Control: in the
same world, where everything is paid alike, GRPO makes no update and publishes nothing, so that an update is one that
learned from a difference. Beside the counts stands how many members and options leave other figures behind than the
default does, on the same rollouts; those that do not are named. `--quick`: a member of each slot, and four options.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from benchmarks.claim import Row, begin, exactly
from benchmarks.parity_world import PLAYED
from benchmarks.slot_members import Choice, members, options
from evolve.config.file import changed, load_config
from evolve.config.model import Config
from evolve.generations.workspace_registry import open_registry
from evolve.training import ledger
from evolve.training.training_session import train
from memory.errors import EvolveError
from policies.rl.trainer import TrainingStopped

SETTINGS = f"""\
{PLAYED}
[run]
tasks = 6

[train]
rank = 2
iterations = 2
chains = 3
rollouts = 4
length = 1
skills = false
temperature = 1.5
"""
TIMED = ("seconds", "rollout_tokens_per_s", "update_tokens_per_s")
Figures = list[dict[str, float]]


def trained(config: Config, settings: dict[str, Any]) -> tuple[Figures, float]:
    """Return the figures of a training's batches, and the largest weight of its adapter's second matrices (0 = as new).

    No figures where it ends without an update.
    """
    try:
        done = train(changed(config, settings), "run")
    except TrainingStopped:
        return [], 0.0
    lines = ledger.lines(done.folder / ledger.METRICS)
    figures = [{name: value for name, value in line.items() if name not in TIMED} for line in lines]
    with open_registry(config.policy, config.workspace, read_only=True) as registry:
        weights = load_file(f"{registry.get(done.generation).adapter}/adapter_model.safetensors")
    return figures, max(float(value.abs().max()) for name, value in weights.items() if "lora_B" in name)


def tried(config: Config, choices: Iterable[Choice]) -> dict[Choice, Figures]:
    """Return what each came to, none for one that made no update."""
    found: dict[Choice, Figures] = {}
    for each in choices:
        try:
            figures, largest = trained(config, each.settings)
        except EvolveError as refused:
            print(f"{each.name}: {refused}", flush=True)
            figures, largest = [], 0.0
        real = largest > 0 and any(line.get("gradient_norm", 0) > 0 for line in figures)
        found[each] = figures if real else []
        print(f"{each.name}: {'trained' if real else 'NOT trained'}", flush=True)
    return found


def alike(found: dict[Choice, Figures], to: dict[str, Figures]) -> list[str]:
    """Return the names of those that left the figures behind that were left without them."""
    return [each.name for each, figures in found.items() if figures and figures == to.get(each.slot + each.member)]


def rows(config: Config, chosen: Sequence[Choice], set_once: Sequence[Choice]) -> list[Row]:
    """Return the table."""
    default, _ = trained(config, {})
    found, others = tried(config, chosen), tried(config, set_once)
    as_shipped = {each.slot + each.member: figures for each, figures in found.items()}
    same = alike(found, dict.fromkeys(as_shipped, default))
    unmoved = alike(others, as_shipped)
    unpaid, largest = trained(config, {"environment.name": "benchmarks.parity_world:Unpaid"})
    return [
        Row("members that made a real update", sum(map(bool, found.values())), exactly(len(found)), n=len(found)),
        Row(
            "options that were set, and made one", sum(map(bool, others.values())), exactly(len(others)), n=len(others)
        ),
        Row("control: updates where all are paid alike", len(unpaid) + largest, exactly(0)),
        Row(f"members whose figures are the default's: {', '.join(same) or 'none'}", len(same), n=len(found)),
        Row(f"options that changed no figure: {'; '.join(unmoved) or 'none'}", len(unmoved), n=len(others)),
    ]


def main() -> None:
    """Measure and record."""
    claim = begin("train_7_slots", __doc__)
    chosen, set_once = list(members()), list(options())
    if claim.quick:
        chosen, set_once = list({each.slot: each for each in chosen}.values()), set_once[::15]
    with tempfile.TemporaryDirectory(prefix="evolve-slots-") as name:
        (Path(name) / "evolve.toml").write_text(SETTINGS)
        claim.conclude(rows(load_config(Path(name) / "evolve.toml"), chosen, set_once))


if __name__ == "__main__":
    main()
