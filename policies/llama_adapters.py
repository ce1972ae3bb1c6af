"""Check the LoRA adapter of a llama.cpp server before its replies are taken for those of a generation."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from memory.records import Frozen
from policies.errors import PolicyRefused
from policies.openai_transport import NoSuchRoute, Transport


class Adapted(Frozen):
    """What a server must compute with."""

    generation: str
    """What it is called in the workspace."""
    file: str
    """Name of the GGUF adapter, without its ending; empty = the base alone."""


async def require_adapter(transport: Transport, base_url: str, wanted: Adapted) -> None:
    """Raise `PolicyRefused` unless the server at `base_url` (`.../v1`) serves this adapter and no other.

    Raises as `Transport.call`.
    """
    try:
        listed: list[Any] = await transport.call(f"{base_url.rstrip('/').removesuffix('/v1')}/lora-adapters", of=list)
    except NoSuchRoute as none:
        raise PolicyRefused(
            f"{base_url} cannot say which adapter it serves, and policy.weights is set; serve the model with `evolve "
            "policy serve FILE.gguf`, or take policy.weights out"
        ) from none
    found = sorted(PurePath(str(each.get("path"))).stem for each in listed if each.get("scale"))
    if found != ([wanted.file] if wanted.file else []):
        served = f"adapter {', '.join(found)}" if found else "the base alone"
        raise PolicyRefused(
            f"{wanted.generation} is to answer in this workspace, and {base_url} serves {served}; serve it: `evolve "
            f"policy serve FILE.gguf --adapter {wanted.generation}`"
        )
