"""The heavy parts of RL on the device at hand (a GPU, else the CPU): generation, a training step, SAGE in miniature.

    python -m benchmarks.gpu [--model DIRECTORY] [--weights lora|full] [--peak-tflops 989] [--json]

Prints tokens a second, memory and, with the device's peak given, MFU: the share of that peak which the model's own
arithmetic uses (2 FLOP a parameter and token forward; 4 with LoRA and 6 with all weights for a training step, as its
frozen weights need no gradient). Nothing is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.sage_arms import Places, Size, measured
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.protocols import Message, SamplingParams
from policies.rl.losses.ppo import Ppo
from policies.rl.rows import Span, TrainRow
from policies.rl.trainer import OptimiserOptions, Trainer

FORWARD = 2
TRAINED = {"lora": 4, "full": 6}
"""FLOP a parameter and token."""


@dataclass(frozen=True)
class Work:
    """What one part did."""

    part: str
    tokens: int
    seconds: float
    flop: float
    """0 where that is not known."""

    def row(self, peak: float | None) -> dict[str, Any]:
        """Return its line of the table."""
        mfu = 100 * self.flop / self.seconds / (peak * 1e12) if peak and self.flop else None
        return {
            "part": self.part,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 2),
            "tokens/s": round(self.tokens / self.seconds),
            "memory, GiB": round(memory() / 2**30, 2),
            "MFU, %": None if mfu is None else round(mfu, 2),
        }


def memory() -> int:
    """Return the most bytes held so far: of the GPU, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def generation(model: Path, batch: int = 128, new: int = 96) -> Work:
    """Sample answers to as many different prompts at once."""
    policy = LocalPolicy(model, profile="compact", max_batch=batch)

    async def sampled() -> int:
        params = [SamplingParams(temperature=1.0, max_tokens=new, seed=at) for at in range(batch)]
        chats = [[Message(role="user", content=f"rules:\ntask: pay {at}")] for at in range(batch)]
        await asyncio.gather(*map(policy.generate, chats[:2], params[:2]))
        began = time.perf_counter()
        replies = await asyncio.gather(*map(policy.generate, chats, params))
        seconds.append(time.perf_counter() - began)
        await policy.aclose()
        return sum(reply.usage.completion_tokens for reply in replies)

    seconds: list[float] = []
    tokens = asyncio.run(sampled())
    return Work("generation", tokens, seconds[0], FORWARD * _parameters(model) * tokens)


def training(model: Path, weights: Any, rows: int = 64, length: int = 512, steps: int = 3) -> Work:
    """Make a few updates from random rows, after one that is not counted."""
    rng = np.random.default_rng(0)
    made = [_row(at, rng.integers(10, 200, 2 * length)) for at in range(rows)]
    trainer = Trainer(model, Ppo(), OptimiserOptions(weights=weights))
    advantages = [np.ones(1) if at % 2 else -np.ones(1) for at in range(rows)]
    trainer.step(made, advantages)
    began = time.perf_counter()
    for _ in range(steps):
        trainer.step(made, advantages)
    seconds, tokens = time.perf_counter() - began, steps * rows * 2 * length
    return Work(f"training ({weights})", tokens, seconds, TRAINED[weights] * _parameters(model) * tokens)


def sage() -> Work:
    """Do a whole cell of the SAGE miniature in small: rollouts, updates and a test; no tokens are counted."""
    small = Size(iterations=2, test=(20,), scenarios=8)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="evolve-gpu-") as name:
        measured("sage", 0, small, Places(POCKET, Path(name) / "build", Path(name) / "cells"))
    return Work("SAGE, two iterations and a test", 0, time.perf_counter() - began, 0.0)


def _row(at: int, ids: np.ndarray) -> TrainRow:
    half = len(ids) // 2
    return TrainRow(
        trajectory_id=str(at),
        prompt_ids=tuple(map(int, ids[:half])),
        completion_ids=tuple(map(int, ids[half:])),
        sampling_logprobs=(-2.0,) * half,
        spans=(Span(start=0, stop=half, step=0, policy_version="v"),),
    )


def _parameters(model: Path) -> int:
    from policies.local.loading import load_model

    return sum(value.numel() for value in load_model(str(model), None).parameters())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=POCKET)
    parser.add_argument("--weights", choices=sorted(TRAINED), default="lora")
    parser.add_argument("--peak-tflops", type=float, help="of the device, in the precision that is used")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU ({platform.processor() or 'unknown'})"
    work = [generation(given.model), training(given.model, given.weights), sage()]
    rows = [each.row(given.peak_tflops) for each in work]
    if given.json:
        print(json.dumps({"device": device, "rows": rows}, indent=2))
        return
    table = Table(*rows[0], title=f"{device}, torch {torch.__version__}, {given.model.name}")
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
