"""A model in this process with PEFT adapters, chosen by name for every call: beside its weights, or merged.

What is chosen may also be a whole model, where all weights were trained.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from policies.generations.whole_model import is_whole
from policies.local.loading import load_model, peft_package
from policies.local.request import Completion, Request
from policies.local.transformers_engine import TransformersEngine


class AdaptedModel:
    """The base in fp32; adapters are added in the forward pass, not merged. Use it from one thread at a time."""

    def __init__(self, path: str, device: str | None = None) -> None:
        """Load the base on a device (None: a GPU where there is one).

        Raises `PolicyRefused` where it or the package peft is missing.
        """
        self._peft = peft_package()
        self._model: Any = load_model(path, None, device=device)
        self._path, self._device = path, device
        self._adapters: set[str] = set()
        self._loaded: dict[str, Any] = {}
        """Models of their own."""
        self.context = int(getattr(self._model.config.get_text_config(), "max_position_embeddings", 1 << 30))

    @property
    def adapters(self) -> frozenset[str]:
        """Names that can be asked for."""
        return frozenset({*self._adapters, *self._loaded})

    def load(self, name: str, path: str) -> None:
        """Add an adapter. Raises `ValueError` or `OSError` where it does not fit; then it is not there."""
        if is_whole(Path(path)):
            self._loaded[name] = load_model(self._path, path, device=self._device)
            return
        if not self._adapters:
            config = self._peft.PeftConfig.from_pretrained(path)
            config.inference_mode = True
            self._model = self._peft.PeftModel(self._model, config, adapter_name=name)
        try:
            missing = self._model.load_adapter(path, adapter_name=name).missing_keys
            if missing:  # peft says so and goes on with an adapter that does nothing
                raise ValueError(f"it has nothing for {len(missing)} of the adapted weights: {missing[0]!r} ...")
        except BaseException:
            self._drop(name)
            raise
        self._model.eval().requires_grad_(requires_grad=False)
        self._adapters.add(name)

    def unload(self, name: str) -> None:
        """Remove an adapter."""
        if self._loaded.pop(name, None) is None:
            self._adapters.remove(name)
            self._drop(name)

    @torch.inference_mode()
    def logprobs(self, prompt: Sequence[int], completion: Sequence[int], name: str | None) -> list[float]:
        """Return the log-probability of each completion token at temperature 1."""
        ids = torch.tensor([[*prompt, *completion]], device=self._model.device)
        with self._chosen(name) as model:
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
        scores = torch.log_softmax(logits[0, len(prompt) - 1 : -1].float(), -1)
        return scores.gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()

    def generate(self, requests: Sequence[Request], name: str | None) -> list[Completion]:
        """Return one completion per request, in order."""
        with self._chosen(name) as model:
            return TransformersEngine(model).generate(requests)

    @contextmanager
    def _chosen(self, name: str | None) -> Generator[Any]:
        if name in self._loaded:
            yield self._loaded[name]
        elif name is not None:
            self._model.set_adapter(name)
            yield self._model
        elif self._adapters:
            with self._model.disable_adapter():
                yield self._model
        else:
            yield self._model

    def _drop(self, name: str) -> None:
        """Take an adapter's weights out of the model; with the last one, peft's layers too."""
        if not self._adapters:
            self._model = self._model.unload()
        elif name in self._model.peft_config:
            self._model.set_adapter(next(iter(self._adapters)))
            self._model.delete_adapter(name)


class MergedModel(AdaptedModel):
    """Adapters merged into copies of the weights, as `LocalPolicy` acts with them: each takes the memory of a model."""

    def load(self, name: str, path: str) -> None:
        """Add a merged copy. Raises `PolicyRefused` where the adapter does not fit."""
        self._loaded[name] = load_model(self._path, path, device=self._device)
