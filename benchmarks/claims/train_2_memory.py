"""Claim train_2: an update takes the memory that its plan says, and a base stands in memory once.

Measured on this machine's CPU with Qwen2.5-Coder-0.5B-Instruct: the largest resident memory of a process while it makes
an update on one row (`benchmarks.step_memory`), beside what `evolve train plan` says before.

    plan       Planned and measured at 2,048 and 8,192 tokens. Control: the allocator as glibc sets it up.
    base       What is left of the peak without optimiser, gradients and activations. Control: a base in float32.
    growth     Planned bytes of one token more, at 32,768 and 16,384; below 4,096 the peak is the output matrix, which
               is widened to float32 there, so that a token seems cheaper. Control: attention that makes its scores.
    copies     What a policy takes that rolls out beside the trainer. Control: one with a model of its own.
    7 B        The plans for one and for eight GPUs of 80 GiB. Control: float32, and nothing computed again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.claim import Row, at_least, at_most, begin
from benchmarks.office_arms import folder
from benchmarks.real import models
from benchmarks.table import ROOT
from evolve.config.model import Config
from evolve.training.memory_plan import GIB, planned
from policies.local.local_policy import POCKET
from policies.rl.optimising import OptimiserOptions
from policies.rl.step_memory import step_memory

MODEL = "qwen2.5-coder-0.5b-instruct"
LONG = OptimiserOptions(dtype="bfloat16", gradient_checkpointing=True)
WIDE = OptimiserOptions(dtype="float32", gradient_checkpointing=True)
NEAR, FAR = 2048, 8192
GROWING = (8192, 16384, 32768)
SMALL = {"vocab_size": 8000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 6}
"""Of the model that `--quick` takes: large beside a tokenizer and beside what an interpreter grows by."""
SEVEN = {
    "model_type": "qwen2",
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
"""Qwen2.5-7B-Instruct."""


def main() -> None:
    """Measure and record."""
    claim = begin("train_2_memory", __doc__)
    with folder() as root:
        if claim.quick:
            model, name, far = small(root / "small"), "a small model", 2 * NEAR
        else:
            model, name, far = models.folder(MODEL), "0.5 B", FAR
        claim.conclude([*updates(model, name, far), *growth(model, name, root), *copies(model, name), *seven(root)])


def updates(model: Path, name: str, far: int) -> list[Row]:
    """Return how far an update is from its plan, and how much of its peak the base is."""
    rows: list[Row] = []
    half = step_memory(model, LONG, 64).base
    for tokens, settings, more in ((NEAR, LONG, ()), (far, LONG, ()), (NEAR, WIDE, ()), (NEAR, LONG, ("--as-it-is",))):
        plan, found = step_memory(model, settings, tokens), measured(model, str(tokens), settings, *more)
        what = f"{name}, {tokens} tokens, {settings.dtype}"
        print(f"{what} {more}: planned {plan.step / GIB:.2f} GiB, measured {found['bytes'] / GIB:.2f}, {found}")
        off = abs(found["bytes"] / plan.step - 1)
        if more:
            rows.append(Row(f"control: {what}, freed blocks kept: measured less planned, share", off, at_least(0.15)))
            continue
        rest = found["bytes"] - plan.optimiser - plan.gradients - plan.trained - plan.activations
        bound = at_least(1.6) if settings is WIDE else at_most(1.6)
        rows += [
            Row(f"{what}: measured less planned, share", off, at_most(0.15)),
            Row(f"{what}: measured, GiB", found["bytes"] / GIB),
            Row(f"{'control: ' * (settings is WIDE)}{what}: base, in multiples of bfloat16", rest / half, bound),
        ]
    return rows


def growth(model: Path, name: str, root: Path) -> list[Row]:
    """Return how much more a token takes far out than near."""
    eager = root / "eager"
    eager.mkdir()
    config = json.loads((model / "config.json").read_text())
    (eager / "config.json").write_text(json.dumps(config | {"attn_implementation": "eager"}))
    rows: list[Row] = []
    for path, what, bound in ((model, "", at_most(1.01)), (eager, "control: eager attention: ", at_least(1.5))):
        at = [step_memory(path, LONG, tokens).activations for tokens in GROWING]
        rows.append(
            Row(f"{what}{name}: a token at 32,768, in those at 16,384", (at[2] - at[1]) / (at[1] - at[0]) / 2, bound)
        )
    return rows


def copies(model: Path, name: str) -> list[Row]:
    """Return what a policy takes beside the trainer, in multiples of the base."""
    base = step_memory(model, LONG, 64).base
    shared, own = (measured(model, "64", LONG, "--policy", kind)["bytes"] / base for kind in ("shared", "own"))
    return [
        Row(f"{name}: a policy beside the trainer, in multiples of its base", shared, at_most(0.1)),
        Row(f"control: {name}: a policy with a model of its own", own, at_least(1.0)),
    ]


def seven(root: Path) -> list[Row]:
    """Print the plans for 7 B, and return what they come to."""
    path = root / "qwen2.5-7b"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(SEVEN))
    again = {"gradient_checkpointing": True}
    rows: list[Row] = []
    for what, tokens, devices, train, bound in (
        ("7 B on 80 GiB, 8,192 tokens", 8192, 1, again, at_most(80)),
        ("7 B on 8 x 80 GiB, 32,768 tokens", 32768, 8, again, at_most(80)),
        ("control: 7 B on 80 GiB, float32, all kept", 8192, 1, {"dtype": "float32"}, at_least(80)),
    ):
        config = Config.model_validate({"train": train, "policy": {"name": "served"}})
        found = planned(config, 80, tokens, model=str(path), devices=devices)
        for part in found.parts:
            print(f"    {part.part:16} {part.bytes / GIB:7.2f} GiB  {part.why}")
        rows.append(Row(f"{what}: an update, GiB", found.update / GIB, bound))
    return rows


def measured(model: Path, tokens: str, settings: OptimiserOptions, *more: str) -> dict[str, Any]:
    """Return what another process measured."""
    command = [sys.executable, "-m", "benchmarks.step_memory", str(model), tokens, settings.model_dump_json(), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


def small(path: Path) -> Path:
    """Make a small random model with the shipped tokenizer."""
    config = AutoConfig.for_model("qwen2", num_attention_heads=4, num_key_value_heads=2, **SMALL)
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(POCKET / name, path)
    return path


if __name__ == "__main__":
    main()
