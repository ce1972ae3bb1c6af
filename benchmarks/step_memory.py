"""Memory that one update really takes on this machine: `python -m benchmarks.step_memory MODEL TOKENS SETTINGS`.

Prints `{"bytes": ..., "seconds": ...}`: the largest resident memory of the process while an update is made on one row
of so many tokens, less what it had before the model was loaded (with all packages imported and used once, on a model
of the same architecture with one layer). Small models stand for large ones: they give freed memory back as those do.
`--as-it-is`: with the allocator as glibc sets it up.

`--policy shared|own` prints instead what a policy takes that rolls out beside the trainer: as a training makes it, with
the trainer's model, or with a model of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig, AutoModelForCausalLM

from evolve.config.model import Config
from evolve.training.rollout_policy import rollout_policy
from policies.local import LocalPolicy, loading
from policies.local.loading import MMAP_THRESHOLD
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.rows import Span, TrainRow
from policies.rl.trainer import Trainer

LARGEST = 32 << 20
"""Up to here glibc raises by itself from which size on blocks are given back."""

SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}


def resident(key: str = "VmRSS") -> int:
    """Return bytes that the process has now, or `VmHWM`: the most since that was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def row(tokens: int, vocabulary: int) -> TrainRow:
    """Return a row of random tokens, of which all but the first are trained."""
    ids = np.random.default_rng(1).integers(0, vocabulary, tokens).tolist()
    return TrainRow(
        trajectory_id="t",
        prompt_ids=(ids[0],),
        completion_ids=tuple(ids[1:]),
        sampling_logprobs=(-1.0,) * (tokens - 1),
        spans=(Span(start=0, stop=tokens - 1, step=0, policy_version="v"),),
    )


def update(trainer: Trainer, tokens: int, vocabulary: int) -> None:
    """Make one update on a row."""
    trainer.step([row(tokens, vocabulary)], [np.array([1.0])])


def measured(model: str, tokens: int, settings: OptimiserOptions, *, as_it_is: bool) -> dict[str, float]:
    """Return the bytes and the seconds of one update."""
    loading.SMALL = 1
    config: Any = AutoConfig.from_pretrained(model)
    small = AutoConfig.for_model(config.model_type, num_hidden_layers=1, vocab_size=256, **SMALL)
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(small).save_pretrained(folder)
        update(Trainer(folder, Ppo(), settings), 32, small.vocab_size)
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.malloc_trim(0)
    before = resident()
    trainer = Trainer(model, Ppo(), settings)
    if as_it_is:
        libc.mallopt(MMAP_THRESHOLD, LARGEST)
    update(trainer, 32, config.vocab_size)  # the optimiser's state is made
    gc.collect()
    libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    began = time.perf_counter()
    update(trainer, tokens, config.vocab_size)
    return {"bytes": resident("VmHWM") - before, "seconds": round(time.perf_counter() - began, 1)}


def beside(model: str, settings: OptimiserOptions, *, own: bool) -> dict[str, float]:
    """Return the bytes that a policy takes beside the trainer that it follows: the one that a training takes, or one
    with a model of its own.
    """
    config = Config.model_validate({"policy": {"name": "local", "model": model}})
    trainer = Trainer(model, Ppo(), settings)
    gc.collect()
    before = resident()
    policy = LocalPolicy(model) if own else rollout_policy(config, Path(), trainer)
    asyncio.run(policy.sync_weights(trainer))
    gc.collect()
    return {"bytes": resident() - before}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("tokens", type=int)
    parser.add_argument("settings", type=OptimiserOptions.model_validate_json)
    parser.add_argument("--as-it-is", action="store_true")
    parser.add_argument("--policy", choices=("shared", "own"))
    given = parser.parse_args()
    if given.policy:
        found = beside(given.model, given.settings, own=given.policy == "own")
    else:
        found = measured(given.model, given.tokens, given.settings, as_it_is=given.as_it_is)
    print(json.dumps(found))
