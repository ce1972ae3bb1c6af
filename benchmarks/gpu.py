"""Measure sampling and training on the device at hand, in steps: `make gpu`, or `python -m benchmarks.gpu OUT`.

    parity     updates and greedy answers of the shipped weights, beside the CPU's
    speed      tokens a second, MFU and peak memory of 0.5 B random weights: sampling, and updates beside their plan
    large      the same of 7 B
    learn      GRPO by a fetched real model on Formula, beside its start
    control    as many batches with rewards dealt out by lot
    sage       SAGE by the same model, on chains of like questions
    miniature  GRPO and SAGE by a weakened pocket model in the office, beside the weights that they began from

A step is a process of its own of at most eight minutes, all of them take 25 at most. Each figure is written to
OUT/<step>.json as soon as it is measured, so what was measured stays if the next one is never reached. Without a GPU
the same steps run on small sizes. MFU is the share of the device's peak in bf16 that the model's own arithmetic uses:
2 FLOP a parameter and token read or sampled, 4 for an update with LoRA, as frozen weights need no gradient.
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

from benchmarks import formula_arms
from benchmarks.claim import git
from benchmarks.claims.train_2_memory import SEVEN, small
from benchmarks.formula_arms import FORMULA, GREEDY, GRPO, SAGE, SAMPLED, SHUFFLED, START, FormulaSize
from benchmarks.real.files import data
from benchmarks.real.models import folder
from benchmarks.sage_arms import Places, Size, measured
from benchmarks.step_memory import update
from benchmarks.table import RESULTS
from benchmarks.weak_pocket import weak_pocket
from memory.errors import EvolveError
from policies.local import LocalPolicy
from policies.local.loading import load_model
from policies.local.local_policy import POCKET
from policies.local.request import Request
from policies.local.transformers_engine import TransformersEngine
from policies.protocols import Message, SamplingParams
from policies.rl.batch import batch_of
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.rows import Span, TrainRow
from policies.rl.step_memory import step_memory
from policies.rl.trainer import Trainer

STEP_S, WHOLE_S = 480, 1500
"""Limits of a step, and of all of them."""
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12}
"""Name of a device -> FLOP a second in bf16, dense, as its maker says."""
SAMPLING, TRAINING = 2, 4
"""FLOP a parameter and token."""
Figure = tuple[str, float | None]
"""What was measured, unit included, and the figure; None where it could not be."""


@dataclass(frozen=True)
class Scale:
    """How much is done."""

    lengths: tuple[int, ...]
    at_once: int
    """Tokens of all prompts that are answered at the same time."""
    new: int
    real: str
    train_s: dict[str, float]
    """An arm on Formula -> the seconds that it is trained at most; the control makes no more batches than GRPO."""
    formula: FormulaSize
    size: Size


GPU = Scale(
    lengths=(2048, 8192, 32768),
    at_once=131072,
    new=96,
    real="qwen2.5-coder-0.5b-instruct",
    train_s={START: 0, GRPO: 240, SHUFFLED: 240, SAGE: 200},
    formula=FormulaSize(),
    size=Size(iterations=8, chains=8),
)
CPU = Scale(
    lengths=(512, 2048),
    at_once=2048,
    new=16,
    real="smollm2-135m-instruct",
    train_s={START: 0, GRPO: 1, SHUFFLED: 1, SAGE: 1},
    formula=FormulaSize(chains=2, rollouts=2, questions=4, samples=1, max_tokens=48),
    size=Size(2, 2, 4, test=(20,), scenarios=4),
)
HALF = SEVEN | {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}
"""Qwen2.5-Coder-0.5B-Instruct, as it is fetched."""
LONG = OptimiserOptions(gradient_checkpointing=True)


def on_gpu() -> bool:
    """Return whether there is one."""
    return torch.cuda.is_available()


def device() -> str:
    """Return what figures are measured on."""
    return torch.cuda.get_device_name() if on_gpu() else f"CPU, {os.cpu_count()} cores, {platform.machine()}"


def parity(out: Path) -> Iterator[Figure]:
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
    apart = np.abs(np.subtract(here["stepped"], cpu["stepped"]))
    yield "log-probability of a greedy token by a recorded step: largest difference from the CPU's, nats", apart.max()


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
    batch = batch_of(rows, advantages, trainer.device)
    before = trainer.logprobs(rows, batch)[batch.mask]
    steps = [trainer.step(rows, advantages) for _ in range(3)]
    after = trainer.logprobs(rows, batch)[batch.mask]
    return {
        "said": [each.text for each in replies],
        "stepped": stepped(),
        "engine": float((before - batch.rollout_logp[batch.mask]).abs().max()),
        "before": before.tolist(),
        "after": after.tolist(),
        **{name: [each[name] for each in steps] for name in ("loss", "gradient_norm")},
    }


def stepped() -> list[float]:
    """Return log-probabilities of greedy tokens, computed by `TransformersEngine`: on a GPU by steps as graphs."""
    engine = TransformersEngine(load_model(str(POCKET), None))
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(5, 400, size).tolist()) for size in (7, 40, 40, 90)]
    return [value for done in engine.generate([Request(each, 24) for each in prompts]) for value in done.logprobs]


def speed(out: Path) -> Iterator[Figure]:
    """Sample, and update at each length, with random weights: what they are does not matter here."""
    if on_gpu():
        yield from _speed_of("0.5 B", HALF)
        return
    with tempfile.TemporaryDirectory(prefix="evolve-gpu-") as name:
        yield from _speed("small", small(Path(name) / "small"), CPU)


def large(out: Path) -> Iterator[Figure]:
    """Do the same with 7 B parameters."""
    if on_gpu():
        yield from _speed_of("7 B", SEVEN)
    else:
        yield "7 B: not run without a GPU", None


def _speed_of(name: str, config: dict[str, Any]) -> Iterator[Figure]:
    fast = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="evolve-gpu-", dir=fast if fast.exists() else None) as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        with torch.device("cuda"):
            made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
        made.save_pretrained(folder)
        del made
        yield from _speed(name, Path(folder), GPU)


def _speed(name: str, model: Path, scale: Scale) -> Iterator[Figure]:
    trainer = Trainer(model, Ppo(), LONG)
    for tokens in scale.lengths:
        for part in (_sampling, _update):
            try:
                yield from part(name, trainer, tokens, scale)
            except torch.OutOfMemoryError:
                yield f"{name}: {part.__name__[1:]} at {tokens:,} tokens: out of memory", None
            torch.cuda.empty_cache()


def _update(name: str, trainer: Trainer, tokens: int, scale: Scale) -> Iterator[Figure]:
    what = f"{name}: an update on a row of {tokens:,} tokens"
    vocabulary = trainer.acting.config.vocab_size
    update(trainer, tokens, vocabulary)
    seconds, peak = timed(lambda: update(trainer, tokens, vocabulary))
    yield f"{what}, tokens a second", tokens / seconds
    yield from _mfu(f"{what}, MFU, %", TRAINING * _parameters(trainer) * tokens, seconds)
    yield f"{what}, most memory, GiB", peak / 2**30
    yield (
        f"{what}, planned, GiB",
        step_memory(Path(trainer.path), LONG, tokens, gpu=on_gpu()).step / 2**30,
    )


def _sampling(name: str, trainer: Trainer, tokens: int, scale: Scale) -> Iterator[Figure]:
    """Sample after prompts of so many tokens, as a training does, then step by step without a graph."""
    rows = scale.at_once // tokens
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(0, trainer.acting.config.vocab_size, tokens).tolist()) for _ in range(rows)]
    requests = [Request(each, scale.new, temperature=1.0, seed=at) for at, each in enumerate(prompts)]
    what = f"{name}: sampling {rows} answers after {tokens:,} tokens"
    model = trainer.acting.eval()
    spent: dict[str, float] = {}
    for told, static in (("", None), ("control: ", False)):
        engine = TransformersEngine(model, static=static)
        engine.generate([Request(each.prompt, 4, temperature=1.0) for each in requests])
        alone, _ = timed(lambda engine=engine: engine.generate([Request(each, 1) for each in prompts]))
        spent[told], peak = timed(lambda engine=engine: engine.generate(requests))
        yield f"{told}{what}, tokens a second", rows * scale.new / spent[told]
        yield f"{told}{what}, seconds of these for the prompts", alone
        yield f"{told}{what}, most memory, GiB", peak / 2**30
    yield from _mfu(f"{what}, MFU, %", SAMPLING * _parameters(trainer) * rows * (tokens + scale.new), spent[""])


def timed(work: Callable[[], object]) -> tuple[float, int]:
    """Return the seconds that work takes, and the most bytes held meanwhile: of the GPU, else of this process."""
    if on_gpu():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    work()
    if not on_gpu():
        return time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    torch.cuda.synchronize()
    return time.perf_counter() - began, torch.cuda.max_memory_allocated()


def _parameters(trainer: Trainer) -> int:
    return sum(value.numel() for value in trainer.acting.parameters())


def _mfu(what: str, flop: float, seconds: float) -> Iterator[Figure]:
    peak = next((each for name, each in PEAK.items() if name in device()), None)
    if peak:
        yield what, 100 * flop / seconds / peak


def learn(out: Path) -> Iterator[Figure]:
    """Try a real model on Formula, train it by GRPO, and try it again."""
    yield from _formula(out, START, GRPO)


def control(out: Path) -> Iterator[Figure]:
    """Train it on as many batches with rewards dealt out by lot."""
    yield from _formula(out, SHUFFLED)


def sage(out: Path) -> Iterator[Figure]:
    """Train the same model by SAGE."""
    yield from _formula(out, SAGE)


def _formula(out: Path, *arms: str) -> Iterator[Figure]:
    scale = GPU if on_gpu() else CPU
    try:
        model = folder(scale.real)
        data("formula_train_subset_500.jsonl")
    except EvolveError as missing:
        yield f"not run: {missing}", None
        return
    with tempfile.TemporaryDirectory(prefix="evolve-gpu-") as name:
        own = {arm: scale.train_s[arm] for arm in arms}
        found = formula_arms.measure(model, Path(name), own, scale.formula, out / FORMULA)
    for arm in arms:
        for way in (GREEDY, SAMPLED):
            yield f"{arm}: {way} success on held-out questions, %", 100 * mean(found[arm][way])
    for arm in (each for each in arms if each != START):
        yield f"{arm}: updates", found[arm]["updates"]
        yield f"{arm}: training, seconds", found[arm]["training seconds"]
        for figure in ("success", "rollout_tokens_per_s", "update_tokens_per_s"):
            values = [each[figure] for each in found[arm]["batches"] if figure in each]
            for at, value in (("first", values[0]), ("last", values[-1])) if values else ():
                yield f"{arm}, {at} batch: {figure}", value


def miniature(out: Path) -> Iterator[Figure]:
    """Train a weakened pocket model and try it, beside its start."""
    size = (GPU if on_gpu() else CPU).size
    with tempfile.TemporaryDirectory(prefix="evolve-gpu-") as name:
        places = Places(weak_pocket(Path(name)), Path(name) / "build", Path(name) / "cells")
        for arm in ("base, library off", "grpo", "base", "sage"):
            found = measured(arm, 0, size, places)
            for figure in ("greedy tgc", "sampled tgc"):
                yield f"{arm}: {figure}, %", mean(found[figure])
            yield f"{arm}: training, minutes", found["training minutes"][0]


STEPS: dict[str, Callable[[Path], Iterator[Figure]]] = {
    "parity": parity,
    "speed": speed,
    "large": large,
    "learn": learn,
    "control": control,
    "sage": sage,
    "miniature": miniature,
}


def commit() -> str:
    """Return the commit of the source: what EVOLVE_COMMIT says, which a copy elsewhere needs, else git."""
    return os.environ.get("EVOLVE_COMMIT") or git("rev-parse", "HEAD")


def measure(step: str, out: Path) -> None:
    """Do a step; write each figure as soon as it is there."""
    about = {"step": step, "device": device(), "torch": torch.__version__, "commit": commit()}
    rows: list[dict[str, Any]] = []
    file = out / f"{step}.json"
    for figure, value in STEPS[step](out):
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
