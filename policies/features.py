"""What a model's server can do: said in the first lines of a run."""

from __future__ import annotations

from memory.records import Frozen
from policies.protocols import Policy


class ServerFeatures(Frozen):
    """What a server was found to do with a model."""

    base_url: str
    model: str
    server: str = ""
    """What it calls itself in its list of models: `vllm`, `llamacpp` ..."""
    json_schema: bool = False
    """Replies that must follow a schema do."""
    logprobs: bool = False
    token_ids: bool = False
    """Ids of the prompt's and the reply's tokens: what training on its replies needs."""
    tools: bool = False
    """Requests that offer tools are taken."""

    @property
    def sentence(self) -> str:
        """Say it in one line."""
        found = {
            "replies by JSON schema": self.json_schema,
            "tools": self.tools,
            "log-probabilities": self.logprobs,
            "token ids": self.token_ids,
        }
        named = f" ({self.server})" if self.server else ""
        at = f"{self.model} at {self.base_url}{named}"
        return f"{at}: {', '.join(f'{what} {_yes(has)}' for what, has in found.items())}"


def _yes(has: bool) -> str:
    return "yes" if has else "no"


async def features_of(policy: Policy) -> ServerFeatures | None:
    """Return what the policy's server can do, None for a policy without one. Raises as its `generate`."""
    find = getattr(policy, "server_features", None)
    return await find() if find is not None else None
