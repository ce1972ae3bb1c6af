"""Claim train_7: every member of every slot makes a real update, and every option of a member and key can be set.

Each is a training of its own by the pocket model, on rollouts of a world that pays half of what is said
(`parity_world`), from the configuration as a user writes it; the weights that it published are read. Control: in the
same world, where everything is paid alike, GRPO makes no update and publishes nothing, so that an update is one that
learned from a difference. Beside the counts stands how many members and options leave other figures behind than the
default does, on the same rollouts; those that do not are named. All other keys of `[train]` are set once each too, in a
world with held-out tasks and a journal (`train_keys`), by rollouts or by the recipe that looks at them; they are seen
to act where figures, files or weights are others than without them. `--quick`: a member of each slot, four options, and
six keys.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from benchmarks import train_keys
from benchmarks.claim import Row, begin, exactly
from benchmarks.parity_world import PLAYED
from benchmarks.slot_members import Choice, members, options
from evolve.config.file import changed, load_config
from evolve.config.model import Config
from evolve.config.training import recipe_settings
from evolve.generations.workspace_registry import FOLDER, open_registry
from evolve.training import ledger
from evolve.training.start import start
from evolve.training.training_session import train
from memory.errors import EvolveError
from policies.rl.trainer import TrainingStopped

SETTINGS = f"""\
{PLAYED}
[run]
tasks = 6

{train_keys.TRAIN}"""
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
    with open_registry(config.policy, config.workspace, read_only=True) as registry:
        weights = load_file(f"{registry.get(done.generation).adapter}/adapter_model.safetensors")
    return figures_of(done.folder), max(float(value.abs().max()) for name, value in weights.items() if "lora_B" in name)


def figures_of(folder: Path) -> Figures:
    """Return the figures of a training that say nothing of time."""
    lines = ledger.lines(folder / ledger.METRICS)
    return [{name: value for name, value in line.items() if name not in TIMED} for line in lines]


def updated(figures: Figures) -> bool:
    """Tell whether an update of a training had a gradient."""
    return any(line.get("gradient_norm", 0) > 0 for line in figures)


def tried(config: Config, choices: Iterable[Choice]) -> dict[Choice, Figures]:
    """Return what each came to, none for one that made no update."""
    found: dict[Choice, Figures] = {}
    for each in choices:
        try:
            figures, largest = trained(config, each.settings)
        except EvolveError as refused:
            print(f"{each.name}: {refused}", flush=True)
            figures, largest = [], 0.0
        real = largest > 0 and updated(figures)
        found[each] = figures if real else []
        print(f"{each.name}: {'trained' if real else 'NOT trained'}", flush=True)
    return found


def alike(found: dict[Choice, Figures], to: dict[str, Figures]) -> list[str]:
    """Return the names of those that left the figures behind that were left without them."""
    return [each.name for each, figures in found.items() if figures and figures == to.get(each.slot + each.member)]


def left(config: Config, recipe: str, settings: dict[str, Any]) -> tuple[Figures, list[str]]:
    """Return the figures of a training, and the names of what it left behind with the hash of its weights.

    It may end without a candidate.
    """
    named: list[str] = []
    with suppress(TrainingStopped):
        start(changed(config, recipe_settings(recipe) | settings), recipe, named=named.append)
    folder = config.workspace / FOLDER / ledger.FOLDER / named[0]
    weights = [sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("adapter/*.safetensors"))]
    return figures_of(folder), sorted(path.name for path in folder.iterdir()) + weights


def keys_tried(config: Config, chosen: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which keys were set in a training that made an update, and which of them left nothing else behind."""
    plain = cache(lambda recipe, beside: left(config, recipe, dict(beside)))
    made: list[str] = []
    same: list[str] = []
    for key in chosen:
        recipe, beside = train_keys.recipe_of(key), train_keys.without(key)
        try:
            found = left(config, recipe, beside | {f"train.{key}": train_keys.VALUES[key]})
            acted = found != plain(recipe, tuple(beside.items()))
        except EvolveError as refused:
            print(f"{key}: {refused}", flush=True)
            continue
        if updated(found[0]):
            made.append(key)
            same += [] if acted and key not in train_keys.CHANCE else [key]
        print(f"{key}: {'changed something' if acted else 'changed nothing'}", flush=True)
    return made, same


def key_rows(config: Config, chosen: Sequence[str]) -> list[Row]:
    """Return the table of the keys that name no member."""
    train_keys.prepare(config)
    made, same = keys_tried(config, chosen)
    reasons = [f"{key} {why}" for key, why in train_keys.LEFT_OUT.items()]
    return [
        Row("keys of [train] that name no member", len(list(train_keys.keys()))),
        Row(f"of these not set here: {'; '.join(reasons)}", len(reasons)),
        Row("keys that were set, and made a real update", len(made), exactly(len(chosen)), n=len(chosen)),
        Row("keys that changed a figure, a file or the weights", len(made) - len(same), n=len(chosen)),
        Row(f"keys that were not seen to change anything: {', '.join(same) or 'none'}", len(same), n=len(chosen)),
    ]


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


def _workspace(folder: Path, settings: str) -> Config:
    folder.mkdir()
    (folder / "evolve.toml").write_text(settings)
    return load_config(folder / "evolve.toml")


def main() -> None:
    """Measure and record."""
    claim = begin("train_7_slots", __doc__)
    chosen, set_once, keys = list(members()), list(options()), list(train_keys.VALUES)
    if claim.quick:
        chosen, set_once, keys = list({each.slot: each for each in chosen}.values()), set_once[::15], keys[::9]
    with tempfile.TemporaryDirectory(prefix="evolve-slots-") as name:
        found = rows(_workspace(Path(name) / "slots", SETTINGS), chosen, set_once)
        claim.conclude(found + key_rows(_workspace(Path(name) / "keys", train_keys.SETTINGS), keys))


if __name__ == "__main__":
    main()
