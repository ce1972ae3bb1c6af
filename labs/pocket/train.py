"""Trains the pocket model on a corpus file: `python -m labs.pocket.train CORPUS.npz --out DIR`.

The rate follows the clock (`--minutes`), so that it reaches zero when the time is up however fast the machine is;
`--steps` ends earlier. A checkpoint and a loadable model are written every few minutes; `--resume` continues from them
in the same data order. Needs torch, transformers, tokenizers and safetensors; a GPU is used where there is one.

Optimisers and the learning-rate schedule: Muon for the matrices inside the layers, AdamW for everything else.

Held-out figures by role: cross-entropy of all tokens and the share of assistant turns a greedy decoder gets exactly
right when the earlier turns are the reference ones. Says nothing about success in an environment.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer
from transformers import LlamaForCausalLM

from labs.pocket.compiling import Compiling
from labs.pocket.corpus_batches import (
    ASSISTANT,
    END,
    ROLES,
    Array,
    Corpus,
    CorpusInvalid,
    Documents,
    batches,
    read_corpus,
)
from labs.pocket.export import chat_tokenizer, export
from labs.pocket.forward import FastForward
from labs.pocket.initial import initialise
from labs.pocket.shape import CONTEXT, pocket_config
from policies.errors import PolicyError


@dataclass(frozen=True)
class Settings:
    """What a training run depends on besides its corpus."""

    minutes: float = 50.0
    steps: int = 1_000_000
    depth: int = 4
    batch_tokens: int = 8_192
    muon_lr: float = 0.006
    adam_lr: float = 1e-3
    seed: int = 0
    compiled: bool = True
    save_minutes: float = 4.0
    held_out_batches: int = 8


class Trainer:
    """One training run: the model, its optimisers, and how far it has come."""

    def __init__(self, corpus: Corpus, settings: Settings, out: Path) -> None:
        self.corpus, self.settings, self.out = corpus, settings, out
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        vocab_size = len(chat_tokenizer(corpus.tokenizer))
        self.model: Any = LlamaForCausalLM(pocket_config(depth=settings.depth, vocab_size=vocab_size))
        initialise(self.model, settings.seed)
        self.model.to(self.device)
        self.forward = FastForward(self.model)
        self.optimizers = make_optimizers(self.model, muon_lr=settings.muon_lr, adam_lr=settings.adam_lr)
        self.step, self.tokens, self.seconds, self.epoch, self.position = 0, 0, 0.0, 0, 0
        self.held_out: dict[str, dict[str, float]] = {}
        self.curve: list[dict[str, Any]] = []

    @property
    def progress(self) -> float:
        """Share of the budget used up, in [0, 1]."""
        return min(1.0, max(self.seconds / (60 * self.settings.minutes), self.step / self.settings.steps))

    def train(self) -> None:
        """Run to the end of the budget, printing, saving and evaluating on the way."""
        began = time.monotonic() - self.seconds
        printed = saved = self.seconds
        recent = np.zeros((len(ROLES), 2))
        tokens = self.tokens
        for rows, width in self._order():
            recent += self._step(rows, width)
            self.seconds = time.monotonic() - began
            if self.seconds - printed >= 20:
                self._print(recent, (self.tokens - tokens) / (self.seconds - printed))
                recent, tokens, printed = np.zeros_like(recent), self.tokens, self.seconds
            if self.seconds - saved >= 60 * self.settings.save_minutes:
                self.save(finished=False)
                self.seconds = time.monotonic() - began
                saved, printed, tokens = self.seconds, self.seconds, self.tokens
            if self.progress >= 1.0:
                break
        self.save(finished=True)

    def save(self, *, finished: bool) -> None:
        """Evaluate, write a checkpoint (atomically) and the loadable model."""
        limit = self.settings.held_out_batches * (4 if finished else 1)
        self.held_out = held_out_figures(
            self.forward,
            self.corpus.held_out,
            tokens=self.settings.batch_tokens,
            limit=limit,
            device=self.device,
        )
        shown = "  ".join(f"{r} {f['loss']:.4f} ({100 * f['exact_turns']:.1f} %)" for r, f in self.held_out.items())
        print(f"step {self.step}  held-out loss (exact turns): {shown}", flush=True)
        self.curve.append({"step": self.step, "seconds": round(self.seconds), "held_out": self.held_out})
        state = {name: getattr(self, name) for name in _PROGRESS}
        state |= {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "settings": asdict(self.settings),
            "corpus_sha256": self.corpus.sha256,
        }
        self.out.mkdir(parents=True, exist_ok=True)
        torch.save(state, self.out / "checkpoint.pt.new")
        (self.out / "checkpoint.pt.new").replace(self.out / "checkpoint.pt")
        export(self.model, self.corpus.tokenizer, self.out, self._facts(finished))

    def resume(self) -> None:
        """Continue from the checkpoint in the output directory. Raises `CorpusInvalid` for another corpus."""
        state = torch.load(self.out / "checkpoint.pt", weights_only=True, map_location=self.device)
        if state["corpus_sha256"] != self.corpus.sha256:
            raise CorpusInvalid(
                f"the checkpoint was trained on corpus {state['corpus_sha256']!r}, got {self.corpus.sha256!r}; "
                "pass that corpus, or another --out"
            )
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for name in _PROGRESS:
            setattr(self, name, state[name])

    def _order(self) -> Iterator[tuple[Array, int]]:
        while True:
            order = batches(
                self.corpus.train, tokens=self.settings.batch_tokens, seed=self.settings.seed, epoch=self.epoch
            )
            while self.position < len(order):
                self.position += 1
                yield order[self.position - 1]
            self.epoch, self.position = self.epoch + 1, 0

    def _step(self, rows: Array, width: int) -> Array:
        """One update; returns (summed loss, tokens) by role."""
        batch = self.corpus.train.padded(rows, width)
        weights = torch.from_numpy(batch.weights[:, 1:]).to(self.device)
        loss, _ = self.forward(torch.from_numpy(batch.ids).to(self.device))
        weighted = loss * weights
        mean = weighted.sum() / weights.sum()
        if not torch.isfinite(mean):
            raise PolicyError(f"the loss became {float(mean)!r} at step {self.step}; lower --muon-lr and --adam-lr")
        mean.backward()
        apply_step(self.optimizers, rate(self.progress, self.step))
        self.step += 1
        self.tokens += int(self.corpus.train.lengths[rows].sum())
        by_row = torch.stack((weighted.detach().sum(1), weights.sum(1)), 1).cpu().numpy()
        return np.stack([by_row[batch.roles == role].sum(0) for role in range(len(ROLES))])

    def _print(self, recent: Array, speed: float) -> None:
        shown = "  ".join(f"{name} {loss / n:.4f}" for name, (loss, n) in zip(ROLES, recent, strict=True) if n)
        remaining = self.seconds / self.progress * (1 - self.progress) / 60
        share = rate(self.progress, self.step)
        print(
            f"step {self.step}  {self.tokens / 1e6:.2f} M tokens  {speed:,.0f} tok/s  epoch {self.epoch}  "
            f"rate {share:.2f}  loss {shown}  {remaining:.1f} min left",
            flush=True,
        )

    def _facts(self, finished: bool) -> dict[str, Any]:
        return {
            "finished": finished,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "steps": self.step,
            "tokens": self.tokens,
            "epochs": round(self.epoch + self.position / max(self.step, 1), 2) if self.epoch == 0 else self.epoch,
            "seconds": round(self.seconds),
            "minutes": round(self.seconds / 60, 1),
            "seed": self.settings.seed,
            "device": self.device,
            "corpus_sha256": self.corpus.sha256,
            "corpus": self.corpus.meta,
            "settings": asdict(self.settings),
            "held_out": self.held_out,
            "curve": self.curve,
        }


_PROGRESS = ("step", "tokens", "seconds", "epoch", "position", "curve")


def keep_freed_memory() -> None:
    """Tell glibc to reuse large freed blocks instead of unmapping them: a third more tokens a second on a CPU."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            m_mmap_max, m_trim_threshold = -4, -1
            libc.mallopt(m_mmap_max, 0)
            libc.mallopt(m_trim_threshold, 2**31 - 1)


def main(argv: list[str] | None = None) -> int:
    """Train from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: all)")
    defaults = asdict(Settings())
    compiled = defaults.pop("compiled")
    parser.add_argument("--no-compile", dest="compiled", action="store_false", default=compiled)
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value, help=f"default {value}")
    options = vars(parser.parse_args(argv))
    path, out, resume, threads = (options.pop(name) for name in ("corpus", "out", "resume", "threads"))
    if options["compiled"] and not (torch.cuda.is_available() or shutil.which("c++") or shutil.which("g++")):
        print("no C++ compiler found: training without torch.compile, about half as fast", flush=True)
        options["compiled"] = False
    Compiling.on = options["compiled"]
    if threads:
        torch.set_num_threads(threads)
    keep_freed_memory()
    try:
        trainer = Trainer(read_corpus(path, context=CONTEXT), Settings(**options), out)
        if resume:
            trainer.resume()
        trainer.train()
    except PolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


WARMUP_STEPS = 100
STABLE_SHARE = 0.4


def make_optimizers(model: Any, *, muon_lr: float, adam_lr: float) -> list[Optimizer]:
    """Return the optimisers of a Llama model. Each group keeps its peak rate under `peak`.

    Muon (Jordan et al. 2024) orthogonalises the momentum of each matrix. Here it learns to copy in about half the
    tokens AdamW needs. Embeddings (tied to the output) and norms are not such maps and stay with AdamW.
    """
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    fused = next(model.parameters()).device.type == "cuda"
    optimizers: list[Optimizer] = [
        Muon(matrices, lr=muon_lr, momentum=0.95, nesterov=True, weight_decay=0.02),
        AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=fused or None),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def rate(progress: float, step: int) -> float:
    """Return the share of the peak rate at `progress` in [0, 1]: 100 warm-up steps, stable to 0.4, linear to 0."""
    decay = min(1.0, max(0.0, (1.0 - progress) / (1.0 - STABLE_SHARE)))
    return min(1.0, (step + 1) / WARMUP_STEPS) * decay


def apply_step(optimizers: list[Optimizer], share: float) -> None:
    """Set every rate to `share` of its peak, step, and clear the gradients."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def held_out_figures(
    forward: Callable[[Tensor], tuple[Tensor, Tensor]], documents: Documents, *, tokens: int, limit: int, device: str
) -> dict[str, dict[str, float]]:
    """Return {role: {loss, exact_turns, documents}} over at most `limit` batches of `tokens`, always the same ones."""
    sums = {role: np.zeros(5) for role in ROLES}
    for rows, width in batches(documents, tokens=tokens, seed=0, epoch=0)[:limit]:
        batch = documents.padded(rows, width)
        with torch.no_grad():
            loss, hit = (x.float().cpu().numpy() for x in forward(torch.from_numpy(batch.ids).to(device)))
        real = np.arange(1, width)[None] < documents.lengths[rows][:, None]
        right, turns = exact_turns(batch.ids, hit)
        for i, role in enumerate(batch.roles):
            sums[ROLES[role]] += (float((loss[i] * real[i]).sum()), real[i].sum(), right[i], turns[i], 1)
    return {
        role: {"loss": float(s[0] / s[1]), "exact_turns": float(s[2] / max(s[3], 1)), "documents": int(s[4])}
        for role, s in sums.items()
        if s[4]
    }


def exact_turns(ids: Array, hit: Array) -> tuple[Any, Any]:
    """Return per row how many assistant turns were predicted without one miss, and how many there are.

    `ids` [rows, length]; `hit` [rows, length - 1], position i is about token i + 1. A turn runs to its end token.
    """
    right, turns = np.zeros(len(ids), int), np.zeros(len(ids), int)
    for row, (tokens, hits) in enumerate(zip(ids, hit, strict=True)):
        ends = np.flatnonzero(tokens == END)
        for begin in np.flatnonzero(tokens == ASSISTANT):
            later = ends[ends > begin]
            if len(later):
                turns[row] += 1
                right[row] += bool(hits[begin : later[0]].all())
    return right, turns


if __name__ == "__main__":
    raise SystemExit(main())
