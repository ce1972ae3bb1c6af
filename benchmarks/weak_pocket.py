"""A pocket model that is weaker than the shipped one: where trainings begin that have to show that weights learn.

The shipped weights do nearly all that they can do in an office, so no training shows there. These are the same with
noise added to the matrices of their layers: they know the language and miss what is exact.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from benchmarks.table import ROOT
from policies.local.local_policy import POCKET

NOISE, SEED = 0.28, 0
"""Standard deviation of the noise, in those of the matrix that it is added to."""
WEAK = ROOT / "build" / "weak"


def weak_pocket(place: Path = WEAK, noise: float = NOISE) -> Path:
    """Return the folder of the weights, made where they are missing."""
    folder = place / f"pocket-{noise:g}"
    if not folder.exists():
        new = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(POCKET, new)
        drawn = torch.Generator().manual_seed(SEED)
        weights = load_file(POCKET / "model.safetensors")
        for name, value in sorted(weights.items()):
            if ".layers." in name and value.ndim == 2:
                change = torch.randn(value.shape, generator=drawn) * value.float().std() * noise
                weights[name] = (value.float() + change).to(value.dtype)
        save_file(weights, new / "model.safetensors", {"format": "pt"})
        new.rename(folder)
    return folder
