"""Optimiser settings that a user makes: without torch, so that the configuration can hold them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from memory.base import Frozen
from policies.errors import PolicyRefused

Dtype = Literal["float32", "bfloat16"]
"""In which weights are held."""


class Optimising(Frozen):
    """How weights are changed."""

    epochs: int = Field(default=1, ge=1)
    """Passes over a batch of rollouts."""
    minibatches: int = Field(default=1, ge=1)
    """Updates made of one batch of rollouts; from 2 on the ratio to the policy that sampled matters."""
    dtype: Dtype | None = None
    """In which the base is held while an adapter of it is trained; the adapter is float32. Not set: `bfloat16` on a
    GPU, else `float32`. `bfloat16` takes half the memory, and what computes it is faster too (GPUs, processors with
    avx512_bf16 or AMX); elsewhere it is widened to float32 piece by piece and takes as long as that. On a GPU
    `float32` is computed in as well, and is several times slower."""
    weights: Literal["lora", "full"] = "lora"
    """Train an adapter, or all weights. The candidate is then a whole model, which answers in process. It is held in
    float32 (on a GPU computed in bfloat16), with its gradients and moments: `evolve train plan` says what it takes."""
    rank: int = Field(default=16, ge=1)
    """Of the adapter; its scale is twice the rank."""
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """AdamW without weight decay. `adamw_8bit` keeps its two moments in 8 bits each (bitsandbytes): a quarter."""
    learning_rate: float = Field(default=1e-4, gt=0)
    """The highest."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate falls to 0 by the last update that the training can make, as in transformers. `constant`
    = not at all."""
    warmup_updates: int = Field(default=0, ge=0)
    """Updates in which the learning rate rises from 0: the first is made at 0, as in transformers."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Largest norm of a gradient; a larger one is scaled down to it."""
    pack_tokens: int | None = Field(default=None, ge=64)
    """Tokens computed at a time; the cost of attention grows with the square of it, what is shared grows slowly. Not
    set: 8192 on a GPU, else 1024."""
    gradient_checkpointing: bool = False
    """Keep one state a layer, and compute the rest again for the gradient: about a third more time, and of what grows
    with the tokens of a pack most of the memory less."""
    reference_kl: bool = False
    """Also tell how far the policy is from the base model (`reference_kl`, nats a token): one pass more over a batch,
    without gradient. It is a figure, no part of the loss."""
    echo: float = Field(default=0.0, ge=0)
    """Weight of one more loss: that the world answers as it did, as the mean of -log p over the tokens between the
    policy's turns, the template's with them (terminal ECHO). So failed episodes teach something too. 0 = none."""

    @model_validator(mode="after")
    def _full(self) -> Self:
        if self.weights == "full" and self.dtype == "bfloat16":
            raise ValueError(
                "got dtype = 'bfloat16' with weights = 'full'; bfloat16 rounds off what an update changes of a weight; "
                "leave dtype out: a GPU computes in bfloat16 all the same"
            )
        if self.weights == "full" and self.reference_kl:
            raise ValueError(
                "got reference_kl with weights = 'full'; it compares an adapter with its base: set it to false"
            )
        return self


class OptimiserOptions(Optimising):
    """How weights are changed, with what no user says."""

    max_tokens: int = Field(default=4096, ge=1)
    """Trained tokens of a row at most, for the aggregation `seq-mean-token-sum-norm`."""
    temperature: float = Field(default=1.0, gt=0)
    """With which the rows were sampled."""
    hosted_model: str = ""
    """The base model's name at a service that trains it (backend `tinker`)."""
    seed: int = 0
    horizon: int = Field(default=0, ge=0)
    """Updates that the training makes at most: where `schedule` ends. 0 = not known, which `constant` alone takes."""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.schedule != "constant" and not self.horizon:
            raise ValueError(f"got schedule = {self.schedule!r} and no number of updates, at which it ends")
        if self.horizon and self.warmup_updates >= self.horizon:
            raise ValueError(
                f"got warmup_updates = {self.warmup_updates} in a training of {self.horizon} updates; expected fewer"
            )
        return self


FREE = frozenset({"horizon", "dtype", "pack_tokens", "max_tokens"})
"""Settings that may be others when a training goes on."""


def require_same(path: Path, written: Mapping[str, Any], settings: OptimiserOptions) -> None:
    """Raise `PolicyRefused` where the checkpoint at `path` was `written` with other settings, those of `FREE` aside."""
    if _todays(written) | settings.model_dump(include=set(FREE)) != settings.model_dump():
        raise PolicyRefused(f"{path} was written with {written}, got {settings.model_dump()}")


def _todays(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's settings as this version writes them: earlier ones said `clip`, had an `aggregation` that
    the loss has now, and lacked some keys."""
    named = {"max_grad_norm" if name == "clip" else name: value for name, value in settings.items()}
    named.pop("aggregation", None)
    return {
        "gradient_checkpointing": False,
        "schedule": "constant",
        "warmup_updates": 0,
        "reference_kl": False,
        "echo": 0.0,
        "optimizer": "adamw",
        "hosted_model": "",
    } | named
