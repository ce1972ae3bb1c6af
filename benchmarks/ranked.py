"""One training in one process and in several, by gloo: a tiny model, and what each process saw of it.

`launched` starts processes as `torchrun` does, from a server that has loaded torch already (`forkserver`): a training
of a tiny model takes less time than to import it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from policies.local.local_policy import POCKET
from policies.rl import batch as batch_module
from policies.rl.corrections.tis import Tis
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.packing import Pack
from policies.rl.processes import LeadingTrainer, follow
from policies.rl.protocols import Array, OffPolicyCorrection
from policies.rl.ranks import rank, world_size
from policies.rl.rows import TrainRow, Turn, rows_of
from policies.rl.trainer import Trainer
from policies.server_process import HOST, free_port

LOADED = ["peft", "policies.rl.processes", "transformers.models.llama.modeling_llama"]
BATCHES, BOUND_S = 3, 600.0
SCORED = "scored.json"
"""How likely the tokens of `unscored` are, as several processes found it."""


@dataclass(frozen=True)
class Case:
    """A training that is done by one process and by several."""

    name: str
    settings: dict[str, Any]
    correction: OffPolicyCorrection | None = None
    numbers: int = batch_module.NUMBERS
    """Logits that are held at a time."""
    averaged: bool = False
    """A control: gradients of the processes are averaged, as FSDP would do it, and not added up."""

    def options(self) -> OptimiserOptions:
        """Return how its weights are changed."""
        usual = {"learning_rate": 3e-3, "rank": 3, "pack_tokens": 64, "seed": 3}
        return OptimiserOptions.model_validate(usual | self.settings)


CASES = (
    Case("lora", {"schedule": "cosine", "warmup_updates": 1, "horizon": 4}),
    Case("full", {"weights": "full", "learning_rate": 1e-3, "minibatches": 2, "epochs": 2}),
    Case("logits in parts", {"gradient_checkpointing": True}, Tis(), numbers=200),
    Case("lora over bfloat16", {"dtype": "bfloat16"}),
)
CONTROL = Case("averaged", {"max_grad_norm": 0.1}, averaged=True)


@dataclass
class Seen:
    """What a process saw of a training."""

    figures: list[dict[str, float]] = field(default_factory=list)
    packs: list[tuple[int, ...]] = field(default_factory=list)
    """Rows of each pack that it computed and that counted."""
    held: int = 0
    """Numbers of the model that it holds."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """At the end, in the first process."""


class Watched(Trainer):
    """Notes the packs that it learns from."""

    seen: Seen
    averaged = False

    def _backward(
        self, pack: Pack, rows: Sequence[TrainRow], part: Any, before: Tensor | None, weights: Tensor
    ) -> dict[str, float]:
        if weights.any():
            self.seen.packs.append(pack.rows)
        scale = world_size() if self.averaged else 1
        found = super()._backward(pack, rows, part, before, weights / scale)
        return found | {"loss": found["loss"] * scale}


def tiny(folder: Path) -> Path:
    """Write a small random Llama with tied embeddings."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    path = folder / "model"
    LlamaForCausalLM(config).save_pretrained(path)
    for each in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (POCKET / each).exists():
            shutil.copy(POCKET / each, path)
    return path


def batch(number: int, rows: int = 5) -> tuple[list[TrainRow], list[Array]]:
    """Return episodes of two turns and their advantages: in packs of 64 tokens an odd number of them."""
    draw = np.random.default_rng(number)
    made: list[TrainRow] = []
    for at in range(rows):
        prompt = tuple(draw.integers(3, 40, size=int(draw.integers(20, 26))).tolist())
        first, then = (tuple(draw.integers(3, 40, size=size).tolist()) for size in (3, 2))
        turns = [said(0, prompt, first), said(1, (*prompt, *first, 9), then)]
        empty = TrainRow(
            trajectory_id=f"{number}-{at}", prompt_ids=(), completion_ids=(), sampling_logprobs=(), spans=()
        )
        made += rows_of(turns, empty)
    return made, [draw.normal(size=2) for _ in range(rows)]


def said(step: int, prompt: tuple[int, ...], ids: tuple[int, ...]) -> Turn:
    """Return a turn that a policy sampled."""
    return Turn(step=step, prompt_ids=prompt, token_ids=ids, logprobs=(-3.5,) * len(ids), policy_version="v1")


def unscored() -> list[TrainRow]:
    """Return the rows of the first batch without log-probabilities."""
    return [row.model_copy(update={"sampling_logprobs": (nan,) * len(row.completion_ids)}) for row in batch(0)[0]]


def trained(model: Path, case: Case, folder: Path | None = None) -> Seen:
    """Train on three batches and return what this process saw.

    `folder` gets a checkpoint after the second, and the result; where it has a checkpoint, training goes on from there.
    """
    batch_module.NUMBERS = case.numbers
    trainer = Watched(model, Ppo(), case.options(), correction=case.correction)
    trainer.averaged, trainer.seen = case.averaged, Seen()
    kept = None if folder is None else folder / "checkpoint.pt"
    begin = trainer.resume(kept)["batches"] if kept is not None and kept.exists() else 0
    for number in range(begin, BATCHES):
        trainer.seen.figures.append(trainer.step(*batch(number)))
        if kept is not None and number == BATCHES - 2:
            trainer.checkpoint(kept, {"batches": number + 1})
    if folder is not None:
        trainer.save(folder / "result")
    local = [value.to_local() if hasattr(value, "to_local") else value for value in trainer.model.parameters()]
    trainer.seen.held = sum(value.numel() for value in local)
    trainer.seen.weights = dict(trainer.merged())
    return trainer.seen


def all_trained(model: Path, cases: Sequence[Case], folder: Path) -> None:
    """Do several trainings in this process and write what it saw of each."""
    for case in cases:
        own = folder / case.name
        own.mkdir(parents=True, exist_ok=True)
        torch.save(vars(trained(model, case, own)), own / f"seen-{rank()}.pt")


def seen(folder: Path, case: Case, number: int) -> Seen:
    """Return what a process saw."""
    return Seen(**torch.load(folder / case.name / f"seen-{number}.pt", weights_only=True))


def led(model: Path, folder: Path, killed_at: int | None, victim: int) -> None:
    """Train in the first process by what it tells the others, a checkpoint a batch, or go on where `folder` stands.

    After `killed_at` batches the process `victim` is killed without a warning.
    """
    (folder / f"{rank()}.pid").write_text(str(os.getpid()))
    if rank():
        follow()
    kept = folder / "checkpoint.pt"
    with LeadingTrainer(model, Ppo(), CASES[0].options()) as trainer:
        begin = trainer.resume(kept)["batches"] if kept.exists() else 0
        (folder / "begun").write_text(str(begin))
        if not begin:
            (folder / SCORED).write_text(json.dumps([row.sampling_logprobs for row in trainer.scored(unscored())]))
        for number in range(begin, BATCHES):
            if number == killed_at:
                os.kill(int((folder / f"{victim}.pid").read_text()), signal.SIGKILL)
            trainer.step(*batch(number))
            trainer.checkpoint(kept, {"batches": number + 1})
        torch.save(dict(trainer.merged()), folder / "weights.pt")


@dataclass(frozen=True)
class Ended:
    """How processes ended."""

    codes: list[int | None]
    """Exit code of each; minus a signal that killed it, None where it did not end in time."""
    seconds: float


def launched(work: Callable[..., None], *given: Any, processes: int = 2, log: Path | None = None) -> Ended:
    """Do some work in processes that know of each other as `torchrun` tells it; end those that take too long."""
    context = get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    port = free_port()
    started = [
        context.Process(target=_as_rank, args=(number, processes, port, log, work, given))
        for number in range(processes)
    ]
    begin = time.monotonic()
    for each in started:
        each.start()
    for each in started:
        each.join(max(0.0, begin + BOUND_S - time.monotonic()))
    codes = [each.exitcode for each in started]
    for each in started:
        each.kill()
        each.join()
    return Ended(codes, time.monotonic() - begin)


def _as_rank(
    number: int, processes: int, port: int, log: Path | None, work: Callable[..., None], given: tuple[Any, ...]
) -> None:
    told = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    os.environ |= {name: str(value) for name, value in told.items()}
    os.environ |= {"MASTER_ADDR": HOST, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    if log is not None:
        with (log.with_name(f"{log.name}-{number}")).open("wb") as file:
            os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    work(*given)


def farthest(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the largest difference of two models' weights."""
    if one.keys() != other.keys():
        raise ValueError(f"weights of two models: {sorted(one.keys() ^ other.keys())} are in one of them")
    return max(float((value.detach() - other[name]).abs().max()) for name, value in one.items())
