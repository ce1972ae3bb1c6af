"""Memory that an update needs, found without any: the step is done on tensors that have a shape and no numbers.

The model is made as the trainer makes it, from its `config.json` alone, and does one forward, backward and optimiser
step on a row as fake tensors (`torch._subclasses.FakeTensorMode`). Every block of memory that would be taken is counted
from where it is made until nothing refers to it any more, so that no formula has to know an architecture.

What is not counted: the interpreter with its packages (some 400 MiB on a CPU, 1 GiB with CUDA), workspaces of matrix
libraries, and what an allocator holds back.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, masking_utils

from memory.base import Frozen
from policies.errors import PolicyRefused
from policies.local.llama import is_plain_llama
from policies.local.loading import computes_bfloat16
from policies.local.transformers_engine import AT_ONCE
from policies.rl.batch import Split
from policies.rl.optimising import OptimiserOptions
from policies.rl.trained_model import held_in, optimizer_of, precision, trainable

SMALL = 4096
"""Numbers of a tensor from which on its moments are kept in 8 bits."""


class StepMemory(Frozen):
    """Bytes of one process that trains alone, by part."""

    base: int
    """Frozen weights; none where all are trained."""
    trained: int
    """Weights of the adapter, or of the model."""
    optimiser: int
    activations: int
    """What is kept for the gradient, and what is made on the way, at the peak."""
    unit: int
    """Weights of the largest layer: what several processes gather at a time."""
    root: int
    """Weights outside the layers, which they hold whole."""
    merged: int
    """A copy of the model in float32 with the adapter merged in, where one is made to roll out in this process."""
    plain_llama: bool
    """Whether it is: for the fast decoder, which also keeps prefixes (`CACHE_BYTES`)."""
    token: int
    """Numbers in the keys and values of one token."""
    prompts: int
    """Bytes that reading `AT_ONCE` tokens of prompts makes, keys and values included."""

    @property
    def gradients(self) -> int:
        """Bytes of the gradients: those of the trained weights."""
        return self.trained

    @property
    def step(self) -> int:
        """Bytes at the peak of an update."""
        return self.base + self.trained + self.gradients + self.optimiser + self.activations


def step_memory(model: str | Path, settings: OptimiserOptions, tokens: int, *, gpu: bool = False) -> StepMemory:
    """Return what an update on a row of so many tokens needs, all of them trained, on a GPU or on this CPU.

    `model` is a folder with `config.json`, or a name on the hub. Raises `PolicyRefused` where there is none.
    """
    try:
        config: Any = AutoConfig.from_pretrained(str(model))
    except (OSError, ValueError) as error:
        raise PolicyRefused(
            f"no model {str(model)!r} ({str(error).splitlines()[0][:200]}); expected a folder with config.json, or a "
            "name on the Hugging Face hub"
        ) from error
    dtype = getattr(torch, held_in(settings, gpu=gpu))
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(config, dtype=dtype).requires_grad_(requires_grad=False)
        numbers = sum(each.numel() for each in plain.parameters())
        made = trainable(plain, settings, widened=not (gpu or computes_bfloat16())).train()
    with FakeTensorMode():
        _fake(made)
        counted = _Counted(made.parameters())
        computed = torch.autocast("cpu", torch.bfloat16) if precision(settings, gpu=gpu) == "bf16" else nullcontext()
        with counted:
            optimizer = optimizer_of(made, settings.model_copy(update={"optimizer": "adamw"}))
            grown = [each for each in made.parameters() if each.requires_grad]
            for each in grown:
                each.grad = torch.zeros_like(each)
            optimizer.step()
            optimizer.zero_grad()
            states = counted.now
            _forward_and_backward(made, tokens, settings.temperature, computed)
            peak, prompts = counted.peak, _read(made, counted)
    trained = _bytes(grown)
    every = _bytes(made.parameters())
    largest, layers = _layers(made)
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return StepMemory(
        base=every - trained,
        trained=trained,
        optimiser=states if settings.optimizer == "adamw" else sum(map(_moments_of_8_bits, grown)),
        activations=peak - states - trained,
        unit=largest,
        root=every - layers,
        merged=4 * numbers,
        plain_llama=is_plain_llama(config),
        token=2 * text.num_hidden_layers * heads * size,
        prompts=prompts,
    )


def _moments_of_8_bits(weights: Tensor) -> int:
    """Return the bytes of both moments: one a number, and a scale in float32 for each block of 256; small tensors keep
    float32 (bitsandbytes 0.50, whose tables cannot be made of fake tensors)."""
    numbers = weights.numel()
    return 8 * numbers if numbers < SMALL else 2 * (numbers + 4 * -(-numbers // 256))


def _forward_and_backward(made: Any, tokens: int, temperature: float, computed: Any) -> None:
    plain = made.get_base_model() if hasattr(made, "get_base_model") else made
    ids = torch.zeros(1, tokens, dtype=torch.long)
    inputs = {"input_ids": ids, "attention_mask": None, "use_cache": False}
    with computed, _one_row():
        parts = Split.of(plain)
        chosen, _ = parts.opinions(inputs, torch.arange(tokens), ids[0], temperature)
    chosen.sum().backward()


def _read(made: Any, counted: _Counted) -> int:
    """Return the bytes at the peak of reading `AT_ONCE` tokens of prompts, above what there was."""
    made.eval()  # under training it keeps no keys and values where states are computed again
    before = counted.peak = counted.now
    with torch.no_grad(), _one_row():
        made(input_ids=torch.zeros(1, AT_ONCE, dtype=torch.long), use_cache=True, logits_to_keep=1)
    return counted.peak - before


@contextmanager
def _one_row() -> Generator[None]:
    """Tell transformers that a row is one sequence, which it cannot see of fake positions: it needs no mask then."""
    seen = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = seen


def _fake(model: Any) -> None:
    """Give a model on torch's meta device fake weights on the CPU, tied ones once."""
    once: dict[int, Any] = {}
    for module in model.modules():
        for name, value in list(module._parameters.items()):
            if value is not None and id(value) not in once:
                empty = torch.empty(value.shape, dtype=value.dtype)
                once[id(value)] = torch.nn.Parameter(empty, requires_grad=value.requires_grad)
            if value is not None:
                module._parameters[name] = once[id(value)]
        for name, value in list(module._buffers.items()):
            if value is not None:
                module._buffers[name] = torch.empty(value.shape, dtype=value.dtype)


class _Counted(TorchDispatchMode):
    """Counts the bytes of all blocks that operations make, but not those of given tensors."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive = {_key(each.untyped_storage()) for each in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return found

    def _count(self, storage: Any) -> None:
        key, size = _key(storage), storage.nbytes()
        if key not in self._alive:
            self._alive.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.now -= size


def _key(storage: Any) -> int:
    """Return what tells a storage from others while it is alive."""
    return storage._cdata


def _layers(model: Any) -> tuple[int, int]:
    """Return the bytes of the largest of the layers that transformers keeps whole, and of all of them."""
    names = getattr(model, "_no_split_modules", None) or ()
    sizes = [_bytes(module.parameters()) for module in model.modules() if type(module).__name__ in names]
    return max(sizes, default=0), sum(sizes)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of some tensors, each counted once."""
    return sum(each.numel() * each.element_size() for each in {id(each): each for each in tensors}.values())
