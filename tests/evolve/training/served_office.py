"""A small training in the office by a served policy, and what its tests have in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from evolve.config.file import load_config
from evolve.config.model import Config
from evolve.generations.workspace_registry import open_registry
from policies.rl.protocols import Array, Episodes

SETTINGS = f"""\
[policy]
name = "served"
base_url = "URL"
max_tokens = 24

[environment]
name = "office"
deployment = 600
max_steps = 2

[memory]
index = "exact"

[train]
backend = "BACKEND"
rank = 4
iterations = UPDATES
chains = 1
length = 1
skills = false
rollouts = 4
learning_rate = 1e-3
filter = "everything"
advantages = "{__name__}:more"
"""


def more(episodes: Episodes) -> Array:
    """Return an advantage for whatever was done: groups of a policy this sure of itself would often have none."""
    return np.ones(len(episodes.trajectory))


class Stopped(Exception):
    """The process ends here."""


def stop(figures: dict[str, float]) -> None:
    raise Stopped


def config_of(folder: Path, url: str, backend: str, updates: int) -> Config:
    text = SETTINGS.replace("URL", url).replace("BACKEND", backend).replace("UPDATES", str(updates))
    (folder / "evolve.toml").write_text(text)
    return load_config(folder / "evolve.toml")


def require_trained(config: Config, generation: str) -> None:
    """See that a training ended in a candidate whose weights changed."""
    with open_registry(config.policy, config.workspace) as registry:
        made = registry.get(generation)
    assert made.state == "candidate"
    assert made.adapter is not None
    weights = load_file(made.adapter / "adapter_model.safetensors")
    assert all(np.abs(value).max() > 0 for name, value in weights.items() if "lora_B" in name)
