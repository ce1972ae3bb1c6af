"""The workspace's generations: where they are kept, and how the live one becomes the policy of a run."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from evolve.config.model import ModelSection, PolicySection
from evolve.errors import ConfigError
from memory.errors import NotFound
from policies.generations.adapters import MAX_RANK
from policies.generations.base_model import base_of
from policies.generations.engine import AdapterEngine
from policies.generations.generation_records import Generation
from policies.generations.generation_registry import DATABASE, Registry
from policies.generations.server_check import CanaryReport, probes
from policies.generations.storage import version_name
from policies.generations.swap import Inspection, checked, unload_unneeded
from policies.protocols import Policy, Profile

if TYPE_CHECKING:
    from policies.generations.vllm_engine import VllmEngine
    from policies.local import LocalPolicy

FOLDER = "policies"
"""Of the workspace."""
TRAININGS = "training"
"""In that folder; a folder for each training stands in it."""
S = TypeVar("S", bound=ModelSection)
WITH_GENERATIONS = ("pocket", "local", "served")
"""Policies whose weights are at hand, so that adapters can be trained on them; `openai` too, with `policy.weights`."""
ANY_RANK = 1 << 30


def model_directory(section: ModelSection) -> Path:
    """Return where the base model of a policy is. Raises `ConfigError` for one whose weights are not at hand."""
    if section.name == "openai" and section.weights:
        return Path(section.weights)
    if section.name not in WITH_GENERATIONS or (section.name == "local" and not section.model):
        raise ConfigError(
            f"policy {section.name!r} (model {section.model!r}) has no generations: they are adapters of weights at "
            f"hand; expected policy.name = {', '.join(map(repr, WITH_GENERATIONS))}, with policy.model for 'local', or "
            "'openai' with policy.weights, the folder of the weights that the server computes with"
        )
    if section.name == "pocket" or not section.model:
        return Path(__file__).parents[2] / "policies" / "pocket" / "weights"
    return Path(section.model)


def has_generations(section: ModelSection) -> bool:
    """Tell whether the weights of a policy are at hand."""
    return section.name in WITH_GENERATIONS or (section.name == "openai" and bool(section.weights))


def profile_of(section: ModelSection) -> Profile:
    """Return which prompts suit the model: those of the shipped one are compact."""
    shipped = section.name == "pocket" or not (section.model or section.weights)
    return "compact" if shipped else section.profile


def open_registry(section: ModelSection, workspace: Path, *, read_only: bool = False) -> Registry:
    """Return the workspace's generations, begun when missing. Raises as `Registry`: `WrongState` for another base."""
    return Registry(workspace / FOLDER, base_of(model_directory(section)), read_only=read_only)


def live_generation(section: ModelSection, workspace: Path) -> Generation | None:
    """Return the live generation, None where the base answers. Raises `WrongState` when it adapts another base."""
    if not (workspace / FOLDER / DATABASE).exists():
        return None
    with open_registry(section, workspace, read_only=True) as registry:
        live = registry.live()
    return live if live.adapter is not None else None


def named_generation(section: ModelSection, workspace: Path) -> Generation | None:
    """Return the generation of the workspace that `policy.adapter` names, None where it names none."""
    if section.adapter is None or not (workspace / FOLDER / DATABASE).exists():
        return None
    with open_registry(section, workspace, read_only=True) as registry:
        return next((each for each in registry.generations() if each.version == section.adapter), None)


def elsewhere(section: PolicySection, workspace: Path) -> PolicySection:
    """Return the section that makes the policy of this workspace in another one, which has no generations."""
    kept = {role: _pinned(own, home(own, section, workspace)) for role, own in section.roles.items()}
    return _pinned(section, workspace).model_copy(update=kept)


def home(section: ModelSection, acting: ModelSection, workspace: Path | None) -> Path | None:
    """Return the workspace whose generations a role may answer with: they adapt the acting model and no other.

    Raises `ConfigError` for a role `served` with another model.
    """
    if (section.name, section.model) == (acting.name, acting.model):
        return workspace
    if section.name == "served":
        raise ConfigError(
            f"policy 'served' (model {section.model!r}) answers with generations of this workspace, and they are of "
            f"{acting.name!r} (model {acting.model!r}); use name = 'openai' for a role with another model"
        )
    return None


def _pinned(section: S, workspace: Path | None) -> S:
    """Return the section with the directory of the adapter that answers here, where there is one."""
    if workspace is None or section.name == "served" or not has_generations(section):
        return section
    chosen = named_generation(section, workspace)
    if chosen is None and section.adapter is None:
        chosen = live_generation(section, workspace)
    if chosen is not None:
        return section.model_copy(update={"adapter": str(chosen.adapter) if chosen.adapter else None})
    return section


def in_process(section: ModelSection, workspace: Path | None) -> LocalPolicy:
    """Return `pocket` or `local` with an adapter: of the generation that is named, else of the live one.

    Raises `ConfigError` where `policy.adapter` is a directory and a generation is live, `AdapterRefused` where the
    files of a generation were changed.
    """
    from policies.local import LocalPolicy

    chosen = named_generation(section, workspace) if workspace is not None else None
    if chosen is None and workspace is not None:
        chosen = live_generation(section, workspace)
        if chosen is not None and section.adapter is not None:
            raise ConfigError(
                f"policy.adapter is {section.adapter!r}, and {chosen.version} is live in this workspace; name a "
                "generation (`evolve policy list`), or take the key out"
            )
    if chosen is not None:
        return acting_with(section, chosen)
    shipped = section.name == "pocket" or (section.name == "served" and not section.model)
    return LocalPolicy.pocket(section.adapter) if shipped else LocalPolicy(Path(section.model), section.adapter)


def acting_with(section: ModelSection, generation: Generation) -> LocalPolicy:
    """Return the model with a generation's adapter, in process. Raises `AdapterRefused` for files that were changed."""
    from policies.local import LocalPolicy

    adapter = checked(generation, ANY_RANK) if generation.adapter is not None else None
    directory = model_directory(section)
    name = f"{section.name if section.name == 'pocket' else directory.name}/{generation.version}"
    policy = LocalPolicy(directory, adapter, name=name, profile=profile_of(section))
    policy.generation = generation.version
    return policy


def served(section: ModelSection, workspace: Path | None) -> Policy:
    """Return the live generation, or the one that `policy.adapter` names, on the vLLM server at `base_url`
    (`evolve policy serve` starts one). Raises `NotFound` for a name that is none of the workspace's."""
    from policies.generations.router import RoutedPolicy
    from policies.local.loading import load_encoder

    if workspace is None:
        raise ConfigError("policy 'served' needs a workspace: its registry says which generation is live")
    encoder = load_encoder(str(model_directory(section)))
    registry = open_registry(section, workspace)
    known = [each.version for each in registry.generations()]
    if section.adapter not in (None, *known):
        registry.close()
        raise NotFound(f"got policy.adapter = {section.adapter!r}; this workspace has {', '.join(known)}")
    engine, profile = vllm_engine(section), profile_of(section)
    return RoutedPolicy(registry, engine, encoder, name="served", profile=profile, named=section.adapter)


def vllm_engine(section: ModelSection, urls: Sequence[str] = ()) -> VllmEngine:
    """Return the vLLM servers that policy `served` asks, or others (`urls`) with its key and patience."""
    from policies.generations.vllm_engine import VllmEngine

    key = os.environ.get(section.api_key_env) if section.api_key_env else None
    asked = urls or section.urls
    return VllmEngine(asked, version_name(0), api_key=key, slots=section.slots, timeout_s=section.timeout_s)


async def unloaded(section: ModelSection, workspace: Path, version: str) -> None:
    """Take a version off the servers of policy `served`, as `swap.unload_unneeded` does."""
    engine = vllm_engine(section)
    try:
        with Registry(workspace / FOLDER, read_only=True) as registry:
            await unload_unneeded(registry, engine, version)
    finally:
        await engine.aclose()


@dataclass(frozen=True)
class Server:
    """Where a generation is loaded before it may answer, and what is asked of it there."""

    urls: tuple[str, ...] = ()
    """vLLM servers; none = that of policy `served`, else this process."""
    max_rank: int = MAX_RANK


Act = Callable[[Registry, AdapterEngine, str, Inspection], Awaitable[CanaryReport]]


async def inspected(
    section: ModelSection,
    registry: Registry,
    act: Act,
    version: str,
    server: Server | None = None,
    texts: Sequence[str] = (),
) -> CanaryReport:
    """Do `act` (`swap.inspect` or `swap.swap`) with peft as the reference, on the servers or on what a run loads.

    `texts` is what the canary asks, as `probing.probe_texts` finds it. Raises what `act` raises.
    """
    from policies.generations.local_engine import LocalEngine
    from policies.local.loading import load_encoder

    server = server or Server()
    directory = model_directory(section)
    urls = server.urls or (section.urls if section.name == "served" else ())
    reference = LocalEngine(directory, device="cpu" if urls else None)  # a server has the GPU
    keyed = section if section.name == "served" else section.model_copy(update={"api_key_env": None})
    engine = vllm_engine(keyed, urls) if urls else LocalEngine(directory, merged=True)
    asked = probes(load_encoder(str(directory)), texts)
    inspection = Inspection(reference, asked, max_rank=server.max_rank)
    try:
        return await act(registry, engine, version, inspection)
    finally:
        await engine.aclose()
        await reference.aclose()


def sentence(policy: Policy) -> str:
    """Return which generation answers, empty where the policy has none."""
    version = getattr(policy, "generation", None)
    return f"{version} answers, a generation of this workspace (weights {policy.version})" if version else ""
