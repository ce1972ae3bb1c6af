"""`evolve train plan --gpu`: what a training will take of memory, by part, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import model_directory
from memory.records import Frozen
from policies.local.llama import CACHE_BYTES, CHUNK_TOKENS, PACKED_BYTES
from policies.local.local_policy import GPU_BATCH, MAX_BATCH
from policies.local.products import onednn_is_faster
from policies.local.transformers_engine import AT_ONCE
from policies.rl.optimising import OptimiserOptions
from policies.rl.step_memory import StepMemory, step_memory
from policies.rl.trained_model import held_in, packed_to

GIB = 1 << 30
RESERVED = {"gpu": 2 * GIB, "cpu": GIB}
"""The interpreter, CUDA's context, workspaces of matrix libraries, and what an allocator holds back."""


class Part(Frozen):
    """Something that takes memory."""

    part: str
    bytes: int
    why: str


class MemoryPlan(Frozen):
    """What a training takes of one device."""

    model: str
    tokens: int
    """Of the longest row."""
    budget: int
    """Bytes of the device."""
    devices: int
    parts: tuple[Part, ...]
    """Of an update."""
    update: int
    """Bytes at the peak of an update."""
    rollouts: int
    """Bytes at the peak of rollouts in this process; 0 where a server makes them."""
    advice: tuple[str, ...] = ()
    """What to set where it does not fit."""

    @property
    def server_share(self) -> float:
        """Return the share of one device that is left for a server beside the training, rounded down; 0 for none."""
        return max(0, 100 - -(-100 * self.update // self.budget)) / 100

    @property
    def fits(self) -> bool:
        """Tell whether one device holds it."""
        return max(self.update, self.rollouts) <= self.budget


def planned(
    config: Config, budget: float, tokens: int, *, model: str = "", gpu: bool = True, devices: int = 1
) -> MemoryPlan:
    """Plan a training by `[train]` whose longest row has so many tokens, on devices of `budget` GiB each.

    `model` stands for the configured one. Raises `ConfigError` for a policy without weights at hand, and
    `PolicyRefused` as `step_memory`.
    """
    if config.train.backend == "tinker":
        raise ConfigError(
            "got train.backend = 'tinker': a service trains, and nothing is computed here that a plan could count"
        )
    path = Path(model) if model else model_directory(config.policy)
    settings = OptimiserOptions.model_validate(
        config.train.model_dump(include=set(OptimiserOptions.model_fields) - {"schedule"})
    )
    packed = packed_to(settings, gpu=gpu)
    found = step_memory(path, settings, max(tokens, packed), gpu=gpu)
    served = config.policy.name == "served" or bool(config.train.llama_cpp.gguf)
    own = not served and (found.plain_llama or devices > 1)
    copy = found.merged + (CACHE_BYTES if found.plain_llama else 0) if own else 0
    parts = [*_parts(found, settings, (max(tokens, packed), packed), gpu=gpu, devices=devices)]
    parts.append(Part(part="merged copy", bytes=copy, why="float32, of the first process, which rolls out"))
    parts = [each for each in parts if each.bytes]
    update = sum(each.bytes for each in parts)
    held = found.base // devices + found.trained // devices + found.optimiser // devices + copy
    rows = min(GPU_BATCH if gpu else MAX_BATCH, config.train.chains * config.train.rollouts)
    half = held_in(settings, gpu=gpu) == "bfloat16"
    widened = 2 if own and half else 1
    kept = found.token * (2 if half and not own else 4)
    kept *= 2 if gpu and not found.plain_llama else 1  # a copy of fixed size beside what the prompts left
    packs = own and found.plain_llama and not gpu and onednn_is_faster() and found.merged <= PACKED_BYTES
    held += found.merged if packs else 0
    together = min(rows * tokens, CHUNK_TOKENS if own and found.plain_llama else AT_ONCE)
    held += RESERVED["gpu" if gpu else "cpu"] + widened * found.prompts * together // AT_ONCE
    rollouts = 0 if served else held + rows * tokens * kept
    made = MemoryPlan(
        model=str(path),
        tokens=tokens,
        budget=round(budget * GIB),
        devices=devices,
        parts=tuple(parts),
        update=update,
        rollouts=rollouts,
    )
    return made if made.fits else made.model_copy(update={"advice": tuple(_advice(made, settings, gpu=gpu))})


def _parts(
    found: StepMemory, settings: OptimiserOptions, tokens: tuple[int, int], *, gpu: bool, devices: int
) -> list[Part]:
    """Return the parts of an update; `tokens`: of the longest row, and of a pack of several."""
    row, packed = tokens
    dtype, share = held_in(settings, gpu=gpu), f", of which this device has 1/{devices}" if devices > 1 else ""
    gathered = found.root + 2 * found.unit if devices > 1 else 0
    kept = "one state a layer is kept, the rest is computed again" if settings.gradient_checkpointing else "all is kept"
    mask = packed * packed * 5
    what = f"an adapter of rank {settings.rank}" if settings.weights == "lora" else f"all, in {dtype}"
    moments = "moments" if settings.optimizer == "adamw" else "moments of 8 bits"
    return [
        Part(part="base", bytes=found.base // devices, why=f"the frozen weights in {dtype}{share}"),
        Part(part="trained weights", bytes=found.trained // devices, why=f"{what}{share}"),
        Part(part="gradients", bytes=found.gradients // devices, why=f"of the trained weights{share}"),
        Part(part="optimiser", bytes=found.optimiser // devices, why=f"AdamW: two {moments} a trained weight{share}"),
        Part(part="gathered", bytes=gathered, why="the layer computed, the next one, and what is outside the layers"),
        Part(part="activations", bytes=found.activations, why=f"of {row} tokens at a time, all trained: {kept}"),
        Part(part="tree mask", bytes=mask, why=f"of rows that share a beginning: {packed} x {packed} at most"),
        Part(part="reserved", bytes=RESERVED["gpu" if gpu else "cpu"], why="interpreter, workspaces, the allocator"),
    ]


def _advice(plan: MemoryPlan, settings: OptimiserOptions, *, gpu: bool) -> list[str]:
    """Return what would take less, the greatest first."""
    advice: list[str] = []
    if plan.rollouts > plan.budget:
        advice.append('fewer train.rollouts or train.chains at a time, or policy.name = "served"')
    if plan.update > plan.budget:
        if not settings.gradient_checkpointing:
            advice.append("train.gradient_checkpointing = true")
        if settings.weights == "full":
            advice.append('train.weights = "lora"')
        if settings.weights == "full" and settings.optimizer == "adamw" and plan.devices == 1:
            advice.append('train.optimizer = "adamw_8bit"')
        if settings.weights == "lora" and held_in(settings, gpu=gpu) == "float32":
            advice.append('train.dtype = "bfloat16"')
        advice.append("shorter rows (policy.max_tokens, environment.max_steps)")
        advice.append("more devices: `--gpus` here, `torchrun --nproc-per-node` to train")
    return advice
