"""Which LoRA adapter a llama.cpp server computes with: asked before its replies are taken for those of a generation."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import httpx

from memory.records import Frozen
from policies.errors import PolicyRefused, PolicyUnavailable


class Adapted(Frozen):
    """What a server must compute with."""

    generation: str
    """What it is called in the workspace."""
    file: str
    """Name of the GGUF adapter, without its ending; empty = the base alone."""


async def require_adapter(base_url: str, wanted: Adapted, timeout_s: float) -> None:
    """Raise `PolicyRefused` unless the server at `base_url` (`.../v1`) serves this adapter and no other.

    Raises `PolicyUnavailable` where there is no server.
    """
    url = f"{base_url.rstrip('/').removesuffix('/v1')}/lora-adapters"
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client:
            answer = await client.get(url)
            listed: Any = answer.json() if answer.is_success else None
    except (httpx.HTTPError, ValueError) as error:
        raise PolicyUnavailable(
            f"{url} gave no answer ({type(error).__name__}); start the server: evolve policy serve FILE.gguf"
        ) from error
    if not isinstance(listed, list):
        raise PolicyRefused(
            f"{base_url} cannot say which adapter it serves, and policy.weights is set; serve the model with `evolve "
            "policy serve FILE.gguf`, or take policy.weights out"
        )
    found = sorted(PurePath(str(each.get("path"))).stem for each in listed if each.get("scale"))
    if found != ([wanted.file] if wanted.file else []):
        served = f"adapter {', '.join(found)}" if found else "the base alone"
        raise PolicyRefused(
            f"{wanted.generation} is to answer in this workspace, and {base_url} serves {served}; serve it: `evolve "
            f"policy serve FILE.gguf --adapter {wanted.generation}`"
        )
