"""Where a server is, and how the models that it serves are reached: what `[policy]` says of one."""

from __future__ import annotations

from pydantic import Field

from memory.base import Frozen


class ServerAddress(Frozen):
    """Where a server is and how patient to be with it."""

    base_url: str = "http://127.0.0.1:8000/v1"
    """Server of `openai` and `served`."""
    api_key_env: str | None = None
    """Environment variable that holds the key; none = OPENAI_API_KEY for api.openai.com, no key for other hosts."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Seconds that one answer may take before it is asked for anew; more for a model on a few cores."""


class ServerSettings(ServerAddress):
    """Options of the policies `openai` and `served`, which ask a server."""

    special_tokens: tuple[str, ...] = ()
    """Control tokens of an `openai` model that its server would obey inside a message; they are broken up first."""
    weights: str = ""
    """Of `openai`: the folder of the weights that the server computes with, where they are at hand. Then they can be
    trained, and the server must serve this workspace's live generation (`evolve policy serve FILE.gguf`)."""
