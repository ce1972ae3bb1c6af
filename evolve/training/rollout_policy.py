"""Rollout policy of a training: it answers with each update of the weights as soon as it is made.

In this process the model under training itself computes, so that there is one copy of it; only a plain Llama has a
second one, merged, for the fast decoder. On llama.cpp (`train.llama_cpp.gguf`) a base in GGUF samples with each new
adapter, in a process that the training starts. A service that trains (`train.backend = "tinker"`) samples too. On vLLM
servers only the adapter travels: it is written to the training's folder, which the servers read, and loaded under a
name of its own, since a name that is used again answers from the old version's cached keys and values (vllm#42125).
Every reply names the version that sampled it.

Other servers cannot take an adapter while they run, and are refused by name before anything is loaded.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.generations import workspace_registry as generations
from policies.encoding import ChatEncoder
from policies.errors import PolicyError, PolicyUnavailable, TimedOut
from policies.generations.engine import AdapterEngine
from policies.generations.errors import UnknownGeneration
from policies.generations.token_policy import TokenPolicy
from policies.llama_server import LlamaOptions
from policies.protocols import Message, Policy, Profile, Reply, SamplingParams
from policies.rl.ranks import world_size
from policies.server_settings import PATIENCE_S

if TYPE_CHECKING:
    from policies.rl.trainer import Trainer

log = logging.getLogger(__name__)

FOLDER = "served"
"""Of a training's folder: the adapters that servers read."""
POLL_S = 2.0
ASKED_AGAIN = 3
"""Times that a request is made anew after its server was gone or had been started again."""


class RolloutPolicy(Policy, Protocol):
    """A policy that follows the weights under training."""

    async def make_room(self) -> None:
        """Give up memory that an update of the weights needs; called before one, while no request is under way."""
        ...

    async def sync_weights(self, trainer: Trainer) -> None:
        """Answer with the trainer's weights as they are now, from the next request on; `version` names them.

        Called while no request is under way.
        """
        ...


def require_rollouts(config: Config) -> None:
    """Raise `ConfigError` for a policy that cannot follow a training while it answers."""
    name = config.policy.name
    if config.train.backend == "tinker":
        require_hosted(config)
        return
    if config.train.llama_cpp.gguf:
        _require_llama_cpp(config)
        return
    if name not in ("pocket", "local", "served"):
        todo = 'policy.name = "local" with policy.model = that folder rolls out in this process'
        raise ConfigError(
            f"a training by rollouts got policy.name = {name!r}, which cannot take new weights while it answers; "
            f"expected 'pocket', 'local', or 'served' (vLLM); {todo if config.policy.weights else 'name one of them'}; "
            "`evolve train sft` learns from the journal of any policy whose weights are at hand"
        )


def require_hosted(config: Config) -> None:
    """Raise `ConfigError` for a policy whose tokenizer is not at hand: a service trains and samples ids."""
    policy, train = config.policy, config.train
    known = policy.name in ("local", "served") or (policy.name == "openai" and policy.weights)
    if not known or train.llama_cpp.gguf:
        raise ConfigError(
            f"got train.backend = 'tinker' with policy.name = {policy.name!r} and train.llama_cpp.gguf = "
            f"{train.llama_cpp.gguf!r}; the service samples, with the tokenizer of weights at hand: expected 'local', "
            "'served', or 'openai' with policy.weights, and no gguf"
        )


def _require_llama_cpp(config: Config) -> None:
    policy, train = config.policy, config.train
    if not (policy.name == "local" or (policy.name == "openai" and policy.weights)) or train.weights == "full":
        raise ConfigError(
            f"got train.llama_cpp.gguf with policy.name = {policy.name!r} and train.weights = {train.weights!r}; "
            "llama.cpp samples with adapters of weights at hand: expected 'local', or 'openai' with policy.weights, "
            "and 'lora'"
        )


def rollout_policy(config: Config, folder: Path, trainer: Trainer) -> RolloutPolicy:
    """Return who rolls out in the training of `folder`, as a `[policy]` says that `require_rollouts` let pass."""
    from policies.local.llama import is_plain_llama
    from policies.local.loading import load_encoder
    from policies.local.local_policy import SharedPolicy

    directory, profile = generations.model_directory(config.policy), generations.profile_of(config.policy)
    outside = partial(ServedRollouts, folder=folder, profile=profile, patience_s=config.policy.patience_s)
    if config.train.backend == "tinker":
        encoder = load_encoder(str(directory))
        return outside(_hosted(config, trainer, encoder), encoder)
    if config.train.llama_cpp.gguf:
        return outside(_llama_cpp(config, folder), load_encoder(str(directory)))
    if config.policy.name == "served":
        return outside(generations.vllm_engine(config.policy), load_encoder(str(directory)))
    if world_size() > 1 or is_plain_llama(trainer.acting.config):
        return generations.in_process(config.policy, config.workspace)
    return SharedPolicy(trainer, profile=profile)


def _llama_cpp(config: Config, folder: Path) -> AdapterEngine:
    """Return llama.cpp's engine. Raises `BadInput` for a base in GGUF of other weights, and as `llama_server.check`."""
    from policies.generations.gguf_adapter import check_same_weights
    from policies.generations.llama_cpp_engine import LlamaCppEngine

    chosen = config.train.llama_cpp
    base = Path(chosen.gguf)
    check_same_weights(generations.model_directory(config.policy), base)
    options = LlamaOptions(slots=chosen.slots, context=chosen.context)
    return LlamaCppEngine(base, folder / "llama.cpp", options, config.policy.timeout_s)


def _hosted(config: Config, trainer: Trainer, encoder: ChatEncoder) -> AdapterEngine:
    """Return the engine of the service that trains."""
    from policies.generations.tinker_engine import TinkerEngine
    from policies.local.loading import context_of
    from policies.rl.tinker import TinkerTrainer

    assert isinstance(trainer, TinkerTrainer)
    context = context_of(str(generations.model_directory(config.policy)))
    return TinkerEngine(trainer.service, config.train.tinker.base_model, encoder.ends, context)


class ServedRollouts(TokenPolicy):
    """The adapter under training on vLLM servers, on llama.cpp or at a service, loaded anew after each update.

    Requests carry no seed: what a server samples depends on what else it computes at the time, so that a seed repeats
    nothing and costs speed. A server that is gone is waited for, `patience_s` at most, and one that was started again
    gets the adapter once more: no episode fails of it.
    """

    def __init__(
        self,
        engine: AdapterEngine,
        encoder: ChatEncoder,
        folder: Path,
        *,
        profile: Profile = "full",
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(engine, encoder, profile=profile)
        self._folder = folder / FOLDER
        self._prefix = f"{folder.name}-u"
        self._patience_s = patience_s
        self._mending = asyncio.Lock()

    async def make_room(self) -> None:
        """Give up nothing: servers hold no memory of the process that trains."""

    async def sync_weights(self, trainer: Trainer) -> None:
        """Write the adapter, load it on every server, and unload what this training loaded before.

        Raises `AdapterRefused` where a server cannot take it, `PolicyUnavailable` where none answers in time. What a
        server that is gone keeps loaded goes with the next update.
        """
        path = self._written(trainer)
        self._generation = path.name
        await self._present()
        with suppress(PolicyUnavailable):
            for old in sorted(set(self._folder.iterdir()) - {path}):
                with suppress(UnknownGeneration):
                    await self.engine.unload(old.name)
                shutil.rmtree(old)

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return one completion of the newest version. Raises as `TokenPolicy`, and `PolicyUnavailable` where a server
        stays away; `TimedOut` at once, since a server that is slow has the adapter."""
        unseeded = params.model_copy(update={"seed": None})
        for _ in range(ASKED_AGAIN):
            try:
                return await super().generate(messages, unseeded)
            except TimedOut:
                raise
            except (PolicyUnavailable, UnknownGeneration) as gone:
                log.info("asked again: %s", gone)
                await self._present()
        return await super().generate(messages, unseeded)

    async def aclose(self) -> None:
        """Take the adapter off the servers that can be reached, and close the engine; a resumed training loads it."""
        if self._generation:
            with suppress(PolicyError):
                await self.engine.unload(self._generation)
        await super().aclose()

    def _written(self, trainer: Trainer) -> Path:
        """Write the adapter under a name that says which update it is, and what it holds."""
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._folder / "unnamed"
        shutil.rmtree(new, ignore_errors=True)
        named = trainer.save_for_sampling(new)
        path = self._folder / f"{self._prefix}{trainer.updates}-{named}"
        if not path.exists():
            new.rename(path)
        return path

    async def _present(self) -> None:
        """See that the servers have the newest version, and wait for those that do not answer."""
        until, said = time.monotonic() + self._patience_s, False
        async with self._mending:  # one of the requests that find it gone sees to it
            while True:
                try:
                    await self.engine.load(self.version, self._folder / self.version)
                except PolicyUnavailable as gone:
                    if time.monotonic() > until:
                        raise
                    if not said:
                        log.warning("%s; waiting for it, %.0f s at most", gone, self._patience_s)
                    said = True
                    await asyncio.sleep(POLL_S)
                else:
                    return
