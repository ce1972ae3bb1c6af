"""What sampling and training do on the device at hand, in four steps: `make gpu`, or `python -m benchmarks.gpu OUT`.

    parity     updates and greedy answers of the shipped weights, beside the CPU's
    speed      tokens a second, MFU and peak memory: sampling, and updates at several lengths beside their plan
    learn      GRPO, then SAGE, by a fetched real model on Formula, until the time is out, with held-out tasks
    miniature  GRPO and SAGE by a weakened pocket model in the office, beside the weights that they began from

A step is a process of its own of at most eight minutes, all of them take 25 at most. Each figure is written to
OUT/<step>.json as soon as it is measured, so what was measured stays if the next one is never reached. Without a GPU
the same steps run on small sizes. MFU is the share of the device's peak in bf16 that the model's own arithmetic uses:
2 FLOP a parameter and token sampled, 4 for an update with LoRA, as frozen weights need no gradient.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.claim import git
from benchmarks.claims.train_2_memory import SEVEN, small
from benchmarks.real.lives import data
from benchmarks.real.models import folder
from benchmarks.sage_arms import Places, Size, measured
from benchmarks.step_memory import update
from benchmarks.table import RESULTS
from benchmarks.weak_pocket import weak_pocket
from evolve.config.file import changed
from evolve.config.model import Config
from evolve.config.training import recipe_settings
from evolve.training.training_session import train
from memory.errors import EvolveError
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.protocols import Message, SamplingParams
from policies.rl.batch import batch_of
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.rows import Span, TrainRow
from policies.rl.step_memory import step_memory
from policies.rl.trainer import Trainer

STEP_S, WHOLE_S, RESERVE_S = 480, 1500, 60
"""Limits of a step and of all of them; seconds that `learn` leaves for its last evaluation."""
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12}
"""Name of a device -> FLOP a second in bf16, dense, as its maker says."""
SAMPLED, TRAINED = 2, 4
"""FLOP a parameter and token."""
Figure = tuple[str, float | None]
"""What was measured, unit included, and the figure; None where it could not be."""


@dataclass(frozen=True)
class Scale:
    """How much is done."""

    lengths: tuple[int, ...]
    at_once: int
    new: int
    real: str
    chains: int
    rollouts: int
    size: Size


GPU = Scale((2048, 8192, 32768), 128, 96, "qwen2.5-coder-0.5b-instruct", 16, 8, Size(iterations=8, chains=8))
CPU = Scale((512, 2048), 8, 32, "smollm2-135m-instruct", 2, 2, Size(2, 2, 4, test=(20,), scenarios=4))
LONG = OptimiserOptions(gradient_checkpointing=True)


def on_gpu() -> bool:
    """Return whether there is one."""
    return torch.cuda.is_available()


def device() -> str:
    """Return what figures are measured on."""
    return torch.cuda.get_device_name() if on_gpu() else f"CPU, {os.cpu_count()} cores, {platform.machine()}"


def parity() -> Iterator[Figure]:
    """Compare this device with the CPU: three updates, and greedy answers with their log-probabilities."""
    with tempfile.TemporaryDirectory(prefix="evolve-gpu-") as name:
        sides: list[dict[str, Any]] = []
        for hidden in ({"CUDA_VISIBLE_DEVICES": ""}, {}):
            file = Path(name) / f"{len(sides)}.json"
            command = [sys.executable, "-m", "benchmarks.gpu", str(file), "--step", "side"]
            subprocess.run(command, env=os.environ | hidden, check=True)
            sides.append(json.loads(file.read_text()))
    cpu, here = sides
    for figure in ("loss", "gradient_norm"):
        apart = max(abs(ours - theirs) for ours, theirs in zip(here[figure], cpu[figure], strict=True))
        yield f"{figure} of three updates: largest difference from the CPU's", apart
    yield "log-probability of a trained token after them: largest difference from the CPU's, nats", _apart(here, cpu)
    yield (
        "control: the same before and after the updates, on the CPU, nats",
        float(np.abs(np.subtract(cpu["before"], cpu["after"])).max()),
    )
    same = mean(ours == theirs for ours, theirs in zip(here["said"], cpu["said"], strict=True))
    yield "greedy answers that are the CPU's, %", 100 * same
    yield "log-probability of a sampled token: engine and trainer apart, nats", here["engine"]


def _apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    return float(np.abs(np.subtract(one["after"], other["after"])).max())


def side() -> dict[str, Any]:
    """Return what this device computes."""
    policy = LocalPolicy.pocket()
    chats = [[Message(role="user", content=f"rules:\ntask: pay {at}")] for at in range(16)]

    async def answered() -> list[Any]:
        try:
            return await asyncio.gather(
                *(policy.generate(chat, SamplingParams(temperature=0.0, max_tokens=32)) for chat in chats)
            )
        finally:
            await policy.aclose()

    replies = asyncio.run(answered())
    rows = [
        TrainRow(
            trajectory_id=str(at),
            prompt_ids=each.prompt_token_ids,
            completion_ids=each.token_ids,
            sampling_logprobs=each.logprobs,
            spans=(Span(start=0, stop=len(each.token_ids), step=0, policy_version="v"),),
        )
        for at, each in enumerate(replies)
    ]
    advantages = [np.array([1.0 if at % 2 else -1.0]) for at in range(len(rows))]
    trainer = Trainer(POCKET, Ppo(), OptimiserOptions(dtype="float32"))
    batch = batch_of(rows, advantages, trainer.accelerator.device)
    before = trainer.logprobs(rows, batch)[batch.mask]
    steps = [trainer.step(rows, advantages) for _ in range(3)]
    after = trainer.logprobs(rows, batch)[batch.mask]
    return {
        "said": [each.text for each in replies],
        "engine": float((before - batch.rollout_logp[batch.mask]).abs().max()),
        "before": before.tolist(),
        "after": after.tolist(),
        **{name: [each[name] for each in steps] for name in ("loss", "gradient_norm")},
    }


def speed() -> Iterator[Figure]:
    """Sample, and update at each length: a large random model, then a real one."""
    scale = GPU if on_gpu() else CPU
    with tempfile.TemporaryDirectory(prefix="evolve-gpu-") as name:
        path = Path(name) / "large"
        if on_gpu():
            path.mkdir()
            (path / "config.json").write_text(json.dumps(SEVEN))
            config: Any = AutoConfig.from_pretrained(path)
            with torch.device("cuda"):
                AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(path)
        else:
            small(path)
        yield from _updates("7 B, random" if on_gpu() else "small, random", path, scale)
        try:
            real = folder(scale.real)
        except EvolveError as missing:
            yield f"{scale.real}: not run: {missing}", None
            return
        yield from _updates(scale.real, real, scale)
        yield from _sampling(scale.real, real, scale)


def _updates(name: str, model: Path, scale: Scale) -> Iterator[Figure]:
    trainer = Trainer(model, Ppo(), LONG)
    parameters = sum(value.numel() for value in trainer.acting.parameters())
    vocabulary = trainer.acting.config.vocab_size
    for tokens in scale.lengths:
        what = f"{name}: an update on a row of {tokens:,} tokens"
        try:
            update(trainer, tokens, vocabulary)
            if on_gpu():
                torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
            update(trainer, tokens, vocabulary)
            seconds = time.perf_counter() - began
        except torch.OutOfMemoryError:
            yield f"{what}: out of memory", None
            continue
        yield f"{what}, tokens a second", tokens / seconds
        if (share := _mfu(TRAINED * parameters * tokens, seconds)) is not None:
            yield f"{what}, MFU, %", share
        yield f"{what}, most memory, GiB", memory() / 2**30
        yield f"{what}, planned, GiB", step_memory(model, LONG, tokens, gpu=on_gpu()).step / 2**30
    del trainer


def _sampling(name: str, model: Path, scale: Scale) -> Iterator[Figure]:
    policy = LocalPolicy(model, profile="compact", max_batch=scale.at_once)
    params = [SamplingParams(temperature=1.0, max_tokens=scale.new, seed=at) for at in range(scale.at_once)]
    chats = [[Message(role="user", content=f"Count from {at} on.")] for at in range(scale.at_once)]

    async def sampled() -> tuple[int, float]:
        try:
            await asyncio.gather(*map(policy.generate, chats[:2], params[:2]))
            began = time.perf_counter()
            replies = await asyncio.gather(*map(policy.generate, chats, params))
            return sum(reply.usage.completion_tokens for reply in replies), time.perf_counter() - began
        finally:
            await policy.aclose()

    tokens, seconds = asyncio.run(sampled())
    yield f"{name}: sampling {scale.at_once} answers at once, tokens a second", tokens / seconds


def _mfu(flop: float, seconds: float) -> float | None:
    peak = next((each for name, each in PEAK.items() if name in device()), None)
    return 100 * flop / seconds / peak if peak else None


def memory() -> int:
    """Return the most bytes held: of the GPU since that was reset, else of this process so far."""
    if on_gpu():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class TimeIsUp(Exception):
    """The training was given as long as it gets."""


def learn() -> Iterator[Figure]:
    """Train a real model on Formula, half of the time by GRPO and half by SAGE; the held-out tasks tell how far."""
    scale = GPU if on_gpu() else CPU
    try:
        files = {"train": data("formula_train_subset_500.jsonl"), "validation": data("formula_val_subset_300.jsonl")}
        model = folder(scale.real)
    except EvolveError as missing:
        yield f"not run: {missing}", None
        return
    share = (STEP_S - RESERVE_S) / 2
    for recipe in ("grpo", "sage"):
        with tempfile.TemporaryDirectory(prefix="evolve-gpu-") as name:
            config = Config.model_validate(
                {
                    "root": name,
                    "environment": {"name": "formula", **files},
                    "policy": {"name": "local", "model": str(model), "max_tokens": 256},
                    "memory": {"index": "exact"},
                }
            )
            settings = recipe_settings(recipe) | {
                "train.iterations": 1000,
                "train.chains": scale.chains,
                "train.rollouts": scale.rollouts,
                "train.evaluate_every": 5,
            }
            told: list[dict[str, float]] = []
            ends = time.monotonic() + share

            def report(figures: dict[str, float], told: list[dict[str, float]] = told, ends: float = ends) -> None:
                told.append(figures)
                if time.monotonic() > ends:
                    raise TimeIsUp

            try:
                train(changed(config, settings), recipe, report)
            except (TimeIsUp, EvolveError) as ended:
                print(f"{recipe}: {ended or 'the time is up'}", flush=True)
        yield f"{recipe}: updates", len(told)
        for at, figures in enumerate(told):
            for figure in ("success", "eval_success"):
                if figure in figures:
                    yield f"{recipe}, batch {at}: {figure}, %", 100 * figures[figure]


def miniature() -> Iterator[Figure]:
    """Train a weakened pocket model and try it, beside its start."""
    size = (GPU if on_gpu() else CPU).size
    with tempfile.TemporaryDirectory(prefix="evolve-gpu-") as name:
        places = Places(weak_pocket(Path(name)), Path(name) / "build", Path(name) / "cells")
        for arm in ("base, library off", "grpo", "base", "sage"):
            found = measured(arm, 0, size, places)
            for figure in ("greedy tgc", "sampled tgc"):
                yield f"{arm}: {figure}, %", mean(found[figure])
            yield f"{arm}: training, minutes", found["training minutes"][0]


STEPS: dict[str, Callable[[], Iterator[Figure]]] = {
    "parity": parity,
    "speed": speed,
    "learn": learn,
    "miniature": miniature,
}


def commit() -> str:
    """Return the commit of the source; empty where a copy without its history runs."""
    try:
        return git("rev-parse", "HEAD")
    except subprocess.CalledProcessError:
        return ""


def measure(step: str, out: Path) -> None:
    """Do a step; write each figure as soon as it is there."""
    about = {"step": step, "device": device(), "torch": torch.__version__, "commit": commit()}
    rows: list[dict[str, Any]] = []
    file = out / f"{step}.json"
    for figure, value in STEPS[step]():
        rows.append({"figure": figure, "value": value})
        new = file.with_suffix(".new")
        new.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")
        new.replace(file)
        print(figure, value, flush=True)


def main() -> None:
    """Do all steps, each in a process of its own, and print what they measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="default: a folder of benchmarks/results/gpu by device")
    parser.add_argument("--step", choices=[*STEPS, "side"], help="do this one alone, in this process")
    given = parser.parse_args()
    out = given.out or RESULTS / "gpu" / device().replace(" ", "_").replace(",", "")
    if given.step == "side":
        out.write_text(json.dumps(side()))
        return
    out.mkdir(parents=True, exist_ok=True)
    if given.step:
        measure(given.step, out)
        return
    ends = time.monotonic() + WHOLE_S
    for step in STEPS:
        command = [sys.executable, "-m", "benchmarks.gpu", str(out), "--step", step]
        try:
            done = subprocess.run(command, timeout=max(1, min(STEP_S, ends - time.monotonic())), check=False)
            print(
                f"{step}: {'done' if done.returncode == 0 else f'ended with exit code {done.returncode}'}", flush=True
            )
        except subprocess.TimeoutExpired:
            print(f"{step}: ended by the clock; what it measured stays", flush=True)
    table = Table("step", "figure", "value", title=f"{device()}, torch {torch.__version__}")
    for step in STEPS:
        if (out / f"{step}.json").exists():
            for each in json.loads((out / f"{step}.json").read_text())["rows"]:
                table.add_row(step, each["figure"], "-" if each["value"] is None else f"{each['value']:.4g}")
    Console().print(table)


if __name__ == "__main__":
    main()
