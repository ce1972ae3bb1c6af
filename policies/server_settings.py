"""Address of a server and access to the models that it serves, as `[policy]` says them."""

from __future__ import annotations

from pydantic import Field, field_validator

from memory.base import Frozen
from memory.redact import without_password

TIMEOUT_S = 120.0
PATIENCE_S = 600.0
_INSTEAD = "name the variable of a key in api_key_env"
"""Of a password in a URL."""


class ServerAddress(Frozen):
    """Where a server is and how patient to be with it."""

    base_url: str = "http://127.0.0.1:8000/v1"
    """Server of `openai` and `served`."""
    api_key_env: str | None = None
    """Environment variable that holds the key; none = OPENAI_API_KEY for api.openai.com, no key for other hosts."""
    timeout_s: float = Field(default=TIMEOUT_S, gt=0)
    """Seconds that one answer may take before it is asked for anew; more for a model on a few cores."""


class ServerSettings(ServerAddress):
    """Options of the policies `openai` and `served`, which ask a server."""

    special_tokens: tuple[str, ...] = ()
    """Control tokens of an `openai` model that its server would obey inside a message; they are broken up first."""
    replicas: tuple[str, ...] = ()
    """More servers of the model that `served` asks, by their URLs; an adapter is loaded on all that can be reached.
    Prompts that begin alike go to one of them, as long as it has no more to do than others."""
    slots: int | None = Field(default=None, ge=1)
    """Requests that a server of `served` answers at once; more wait here, where no time runs out. None = as the server
    says (it does under `VLLM_SERVER_DEV_MODE=1`), else 256."""
    patience_s: float = Field(default=PATIENCE_S, ge=0)
    """Seconds that a training waits for a server that is gone; more where a large model takes longer to start."""
    weights: str = ""
    """Of `openai`: the folder of the weights that the server computes with, where they are at hand. Then they can be
    trained, and the server must serve this workspace's live generation (`evolve policy serve FILE.gguf`)."""

    @field_validator("base_url")
    @classmethod
    def _without_password(cls, url: str) -> str:
        return without_password(url, _INSTEAD)

    @field_validator("replicas")
    @classmethod
    def _all_without_password(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(without_password(url, _INSTEAD) for url in urls)

    @property
    def urls(self) -> tuple[str, ...]:
        """All servers of the model."""
        return (self.base_url, *self.replicas)
